package relay

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/internal/watch/meter"
	"github.com/cdc-relay/cdc-relay/sink"
)

// This file says how a relay is, to people and scripts. It reads; the watch calls what begins with note.

// Status is the response of /api/v1/status. Names are stable.
type Status struct {
	Service string    `json:"service"`
	Version string    `json:"version"`
	Started time.Time `json:"started_at"`
	Role    Role      `json:"role"`
	Since   time.Time `json:"role_since"`
	Ready   bool      `json:"ready"`
	Reasons []string  `json:"reasons"` // why not ready, or what is wrong though ready

	// State is the status in a word: starting, standby, catching_up, active, degraded, paused, halted, stopping. A
	// degraded relay relays: it is ready, unless Reasons says why not.
	State    string        `json:"state"`
	Degraded []Degradation `json:"degraded"`

	Slot         string  `json:"slot"`
	Epoch        *int64  `json:"epoch"`         // null: without a session
	ReceivedLSN  *string `json:"received_lsn"`  // null: nothing was received in this session
	ConfirmedLSN *string `json:"confirmed_lsn"` // null: not known

	Figures
	Work
	Trouble
}

// Figures are values of the database and the slot, as in /metrics. Null means unknown, as on a standby.
type Figures struct {
	LagBytes      *int64   `json:"replication_lag_bytes"`
	LagSeconds    *float64 `json:"replication_lag_seconds"`
	RetainedWAL   *int64   `json:"retained_wal_bytes"`
	Backlog       *int64   `json:"backlog"`
	OldestPending *float64 `json:"oldest_pending_age_seconds"` // parked events included
	Spooled       *int64   `json:"spooled_events"`             // in cdc_relay_spool
	ParkedKeys    *int64   `json:"parked_keys"`                // an event without a key has none
	ParkedEvents  *int64   `json:"parked_events"`
	DeadLetters   *int64   `json:"dead_letters"`       // neither replayed nor discarded
	MirrorLag     *int64   `json:"mirror_lag_events"`  // journaled, and not yet marked or deleted
	MirrorAge     *float64 `json:"mirror_lag_seconds"` // for how long the oldest of these is not
	// Walsender is the progress of the server's side of the stream: whether events wait for it or for the relay.
	Walsender *Walsender `json:"walsender"`
}

// Work counts events in memory, and events handled since the start.
type Work struct {
	InFlight      int        `json:"in_flight_events"`
	InFlightBytes int        `json:"in_flight_bytes"`
	Unrecorded    int        `json:"unrecorded_events"`
	HeldLanes     int        `json:"held_keys"`
	LastPublished *time.Time `json:"last_published_at"` // null: nothing yet
	Rates         *Rates     `json:"rates"`             // null in the first second and on a standby
	Received      uint64     `json:"events_received_total"`
	Settled       uint64     `json:"events_settled_total"`
	LookingUp     bool       `json:"looking_up"` // a restart's redelivery is not over
	// Interleaved are writers of one aggregate that overlapped; null: the table has no number to tell by.
	Interleaved *meter.Interleaved `json:"interleaved"`
}

// Trouble lists problems that a person may have to look into.
type Trouble struct {
	Broker string `json:"broker"` // ok, or what the sink waits for
	// Alarms are the unacknowledged ones of the relay that holds the slot; see docs/events.md.
	Alarms        []store.Alarm `json:"alarms"`
	LastError     string        `json:"last_error,omitempty"`
	LastErrorAt   *time.Time    `json:"last_error_at,omitempty"`
	LastErrorOver bool          `json:"last_error_over,omitempty"` // what it was about is well again
	Halt          *HaltStatus   `json:"halt,omitempty"`
	Paused        *store.Pause  `json:"paused,omitempty"` // not consuming, and who asked for that
}

// HaltStatus is a halt in the API.
type HaltStatus struct {
	Code   string `json:"code"`
	Reason string `json:"reason"`
	Risk   string `json:"risk"`
	Remedy string `json:"remedy"`
	// Runbook is the path, on the listener of the HTTP API, of the page about halts of this code.
	Runbook string `json:"runbook"`
}

// Store returns the store, for reading the relay's tables and writing requests; nil until Run has begun. Only Run may
// take over.
func (r *Relay) Store() *store.Store { return r.opened.Load() }

// Status may be called at any time from any goroutine.
func (r *Relay) Status() Status {
	st := Status{
		Service: r.c.Service, Version: r.version, Started: r.started, Slot: r.c.Postgres.Slot, Reasons: []string{},
		ReceivedLSN: position(r.meter.Received()), ConfirmedLSN: position(r.meter.Confirmed()),
		Figures: r.figures(),
		Work: Work{
			InFlight: r.inFlight(), LastPublished: r.meter.Outcomes.LastPublished(),
			Received: r.meter.Stream.Events(), Settled: r.meter.Outcomes.Settled(),
			Interleaved: r.meter.Stream.Interleaved.Report(),
		},
	}
	if s := r.session(); s != nil {
		st.Epoch, st.LookingUp = new(s.epochSeen.Load()), s.lookingUp.Load()
	}
	r.describe(&st)
	st.Alarms = r.alarms.Open()
	if stood := r.stood(&st); stood > standstill {
		st.Reasons = append(st.Reasons,
			fmt.Sprintf("no event was settled for %v, and %d wait", stood.Round(time.Second), st.InFlight))
	}
	st.Ready = len(st.Reasons) == 0 && (st.Role == RoleActive || st.Role == RoleStandby)
	st.Degraded = r.degradations()
	st.State = st.state()
	return st
}

// describe fills in the role, and all that events may wait for.
func (r *Relay) describe(st *Status) {
	if r.owner() != nil {
		if st.Paused, _ = r.pausing.State(); st.Paused != nil {
			st.Reasons = append(st.Reasons, fmt.Sprintf("paused by %s since %s; cdc-relay resume continues",
				st.Paused.By, st.Paused.Since.UTC().Format(time.RFC3339)))
		}
	}
	r.describeSink(st)
	r.describeHealth(st)
}

func (r *Relay) figures() Figures {
	m := r.meter
	f := Figures{
		LagBytes: figure[int64](m.LagBytes()), LagSeconds: figure[float64](m.Lag()),
		Backlog: figure[int64](m.Backlog()), OldestPending: figure[float64](m.PendingAge()),
		Spooled: figure[int64](m.Spooled()), ParkedKeys: figure[int64](m.HeldKeys()), ParkedEvents: figure[int64](m.Parked()),
		DeadLetters: figure[int64](m.OpenDead()), Walsender: m.Walsender(),
		MirrorLag: figure[int64](m.MirrorLag()), MirrorAge: figure[float64](m.MirrorAge()),
	}
	if slot := r.Slot(); slot != nil && m.MayTell() {
		f.RetainedWAL = &slot.Retained
	}
	return f
}

// figure turns one that is not known at all times into one of a status, position a position.
func figure[T int64 | float64](value float64, known bool) *T {
	if !known {
		return nil
	}
	return new(T(value))
}

func position(lsn outbox.LSN) *string {
	if lsn == 0 {
		return nil
	}
	return new(lsn.String())
}

// standstill is the time that events may be in flight without any being settled, for no known reason, before the
// relay is not ready.
const standstill = 30 * time.Second

// deadStandstill is the time after which only a restart is left to be tried.
const deadStandstill = 90 * time.Second

// stood returns for how long events have been in flight without any being settled, for no known reason.
func (r *Relay) stood(st *Status) time.Duration {
	if len(st.Reasons) > 0 || st.Role != RoleActive || st.InFlight == 0 {
		return 0
	}
	return time.Since(r.moved())
}

// Live reports whether the relay makes progress, and if not, why. Restart a process that is not live. Outages and
// halts, which a restart does not cure, don't count; Status reports them.
func (r *Relay) Live() (live bool, reasons []string) {
	live, reasons = r.meter.Live()
	if r.Parked() >= int64(r.c.Limits.ParkedEvents) {
		return live, reasons
	}
	st := Status{Work: Work{InFlight: r.inFlight()}}
	r.describe(&st)
	if stood := r.stood(&st); stood > deadStandstill {
		reasons = append(reasons, fmt.Sprintf("%d events are in flight and none was settled for %v, for no reason that is "+
			"known: something is stuck", st.InFlight, stood.Round(time.Second)))
	}
	return len(reasons) == 0, reasons
}

// moved is the time at which an event was settled last, or nothing was in flight: by the clock that is never set.
func (r *Relay) moved() time.Time { return r.started.Add(time.Duration(r.movedAt.Load())) }

// noteMoves renews it; the watch calls it once a second. What is parked is settled, too, though it will be counted
// when it is published.
func (t *term) noteMoves(settled *uint64) {
	if n := t.r.meter.Outcomes.Moves(); n != *settled || t.inflight.Len() == 0 {
		*settled = n
		t.r.movedAt.Store(int64(time.Since(t.r.started)))
	}
}

// stalledAfter is the time that the sink may be in trouble before the relay is not ready.
const stalledAfter = 5 * time.Second

// unreachable is a driver that reports whether a broker answers, even while nothing is sent.
type unreachable interface {
	Unreachable() (since time.Time, err error)
}

func (r *Relay) describeSink(st *Status) {
	st.Broker = "ok"
	t := r.term.Load()
	if t == nil {
		return
	}
	q := t.engine.Status()
	st.InFlightBytes, st.Unrecorded, st.HeldLanes = q.Bytes, q.Unrecorded, q.HeldLanes
	since := q.Since
	if q.State != sink.OK {
		st.Broker = q.State.String() + ": " + q.Reason
	}
	if driver, tells := r.driver.(unreachable); tells {
		// Also while nothing waits for it: the next event would. Of two proofs of an outage the older one counts, or the
		// first event that meets it would make it look new.
		at, err := driver.Unreachable()
		if err != nil && (q.State == sink.OK || at.Before(since)) {
			since = at
		}
		switch {
		case err != nil && q.State == sink.OK:
			st.Broker = "unreachable: " + err.Error()
		case err != nil && q.State == sink.Stalled:
			// A batch's own error may be what a broker said before it stopped, such as that it no longer leads.
			st.Broker = q.State.String() + ": " + err.Error()
		}
	}
	if st.Broker != "ok" && time.Since(since) > stalledAfter {
		st.Reasons = append(st.Reasons, "broker "+st.Broker)
	}
	if text := t.throttled(q); text != "" && st.Broker == "ok" {
		st.Broker = throttledBroker + text
	}
}

// noteBroker keeps the newest error up to date, and logs what the outage has to say; the watch calls it once a second.
func (t *term) noteBroker(o *outage) {
	var st Status
	t.r.describeSink(&st)
	t.noteSink(&st)
	well := st.Broker == "ok" || strings.HasPrefix(st.Broker, throttledBroker)
	message, lasts := o.next(len(st.Reasons) > 0, well)
	switch {
	case message == "":
	case well:
		t.r.log.Info().Str("after", lasts.String()).Msg(message)
	default:
		t.r.log.Warn().Str("broker", st.Broker).Int("in_flight", t.inflight.Len()).Str("for", lasts.String()).Msg(message)
	}
}

// noteSink keeps the newest error up to date with what the sink waits for, as described in st, and with the topics
// that are in trouble.
func (t *term) noteSink(st *Status) {
	if len(st.Reasons) > 0 {
		t.r.health.SinkTrouble("broker " + st.Broker)
		return
	}
	topics := t.settler.TroubledTopics()
	slices.Sort(topics)
	for _, topic := range topics {
		if why := t.settler.TroubleOf(topic); why != nil {
			t.r.health.SinkTrouble(fmt.Sprintf("%s %s: %s: %s", t.r.word(), topic, t.waitingOf(topic), why.Text))
			return
		}
	}
	t.r.health.SinkTrouble("")
}

// waitingOf says what waits of a topic in trouble: all is parked, or will be, but what was sent and has no answer.
func (t *term) waitingOf(topic string) string {
	if n := t.engine.Unanswered(topic); n > 0 {
		return fmt.Sprintf("its events wait, %d of them sent and without a definite answer", n)
	}
	return "its events wait, in order, until it recovers"
}

// word returns the broker's word for a topic.
func (r *Relay) word() string {
	if driver, is := r.driver.(sink.Worded); is {
		return driver.Word()
	}
	return "topic"
}

func (r *Relay) describeHealth(st *Status) {
	h := r.health.Report()
	st.Role, st.Since = h.Role, h.Since
	st.Reasons = append(st.Reasons, h.Reasons...)
	if h.Halt != nil {
		st.Halt = &HaltStatus{
			Code: h.Halt.Code, Reason: h.Halt.Reason, Risk: h.Halt.Risk, Remedy: h.Halt.Remedy,
			Runbook: "/docs/runbooks/" + h.Halt.Code,
		}
		if text := r.overBudget(); text != "" {
			st.Reasons = append(st.Reasons, text)
		}
	}
	if h.LastError != "" {
		st.LastError, st.LastErrorAt, st.LastErrorOver = h.LastError, &h.LastErrorAt, h.LastErrorOver
	}
}

// Notes returns the latest changes of role, halts and restarts of the stream, newest first, and the number of the
// newest, 0 without any.
func (r *Relay) Notes() (notes []Note, newest int64) { return r.health.Notes() }

// Noted returns the number of the newest note.
func (r *Relay) Noted() int64 { return r.health.Noted() }

// state is the whole status in a word.
func (st *Status) state() string {
	switch {
	case st.Role == RoleActive && st.Paused != nil:
		return "paused"
	case st.Role == RoleActive && (!st.Ready || len(st.Degraded) > 0):
		return "degraded"
	case st.Role == RoleCatchUp:
		return "catching_up"
	}
	return string(st.Role)
}
