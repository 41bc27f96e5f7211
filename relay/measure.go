package relay

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/message"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/settle"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/internal/watch/meter"
	"github.com/cdc-relay/cdc-relay/sink"
)

// This file connects the relay and its meter: what the meter asks, and what others ask it by way of the relay. Any
// goroutine may call what is here.

// Counts holds totals since the start of the process: events received, published, settled and dead, and latencies.
type Counts = meter.Counts

// Rates are events per second, averaged over a number of seconds.
type Rates = meter.Rates

// Walsender is the progress of the server's side of the stream.
type Walsender = meter.Walsender

// LatencyCounts are the counts of a latency's fine buckets, eight to each power of two.
type LatencyCounts = meter.LatencyCounts

func (r *Relay) newMeter(version string) *meter.Meter {
	reasons := degradedReasons
	var names func() map[int32]string
	if r.c.Outbox.Tables != "" {
		reasons, names = append(slices.Clone(reasons), degradedOutbox), r.outboxNames
	}
	if r.concerns != nil {
		reasons = append(slices.Clone(reasons), DegradedConfiguration)
	}
	return meter.New(meter.Options{
		Service: r.c.Service, Version: version, Topics: message.FixedTopic(r.c.Message.Topic), Reasons: reasons,
		Start: settle.Start, Started: r.started, Driver: r.driver, Health: &r.health, Source: measured{r},
		Lines: r.lines, Aliases: r.c.Metrics.Aliases, Outboxes: names,
	})
}

// outboxNames are the names of several outboxes by the source of their events.
func (r *Relay) outboxNames() map[int32]string {
	if r.term.Load() == nil || r.outboxes == nil { // before Run has opened them
		return nil
	}
	return r.outboxes.Names()
}

// measured is a relay as its meter sees it: a [meter.Source].
type measured struct{ r *Relay }

func (m measured) InFlight() int                  { return m.r.inFlight() }
func (m measured) Parked() int64                  { return m.r.Parked() }
func (m measured) Sink() sink.Status              { return m.r.sinkStatus() }
func (m measured) Alarms(kind string) (int, bool) { return m.r.alarms.OpenOf(kind) }

func (m measured) OldestBlocker() (time.Duration, bool) {
	age, known := m.r.blockers.Oldest()
	return age, known && m.r.owner() != nil
}

func (m measured) Broker() (available, known bool) {
	var st Status
	m.r.describeSink(&st)
	return len(st.Reasons) == 0, m.r.owner() != nil
}

// Degraded is not known of what the database tells, while it does not, or another relay asks it.
func (m measured) Degraded(reason string) (degraded, known bool) {
	known = true
	switch reason {
	case degradedAlarm:
		known = m.r.owner() != nil && m.r.alarms.Known()
	case degradedTransaction:
		_, known = m.OldestBlocker()
	}
	return m.r.isDegraded(reason), known
}

func (m measured) Session() (meter.Session, bool) {
	s := m.r.session()
	if s == nil {
		return meter.Session{}, false
	}
	now := meter.Session{
		Granted: s.grant.Confirmed, Taken: outbox.LSN(s.taken.Load()),
		Received: s.stream.Received(), Confirmed: s.ledger.Confirmed(), Events: s.events.Load(),
	}
	if at, some := s.ledger.Oldest(); some {
		now.Oldest = time.UnixMicro(at).Add(-time.Duration(s.ahead.Load())) // by our clock
	}
	if p := s.spool.Load(); p != nil {
		now.Spool = meter.Spool{Spooling: p.Taking(), Spooled: p.Events(), Unread: p.Unread()}
		now.SpooledSince, _ = p.Oldest()
		if now.Spooling {
			now.Taken = now.Confirmed
		}
	}
	return now, true
}

// Registry returns the registry of the relay's metrics.
func (r *Relay) Registry() *prometheus.Registry { return r.meter.Registry() }

// Counts returns the current totals. It takes a few microseconds.
func (r *Relay) Counts() Counts { return r.meter.Counts() }

// Topics returns the number of acknowledged events by topic.
func (r *Relay) Topics() map[string]uint64 { return r.meter.Outcomes.Topics() }

// Window returns the bounds of the events in memory; see limits.in_flight_events and limits.in_flight_bytes.
func (r *Relay) Window() (events, bytes int) {
	return r.c.Limits.InFlightEvents, int(r.c.Limits.InFlightBytes)
}

// Settings returns the configuration without its secrets.
func (r *Relay) Settings() []config.Shown { return r.c.Shown() }

// Parked returns the approximate number of parked events.
func (r *Relay) Parked() int64 {
	if t := r.term.Load(); t != nil {
		return t.settler.Parked()
	}
	return 0
}

// OpenDead returns the number of dead letters not yet replayed or discarded, as last counted.
func (r *Relay) OpenDead() int64 { return r.meter.Database.OpenDead.Value() }

// InFlight returns those of the events that this relay has read and not recorded yet. Call it before reading the
// tables, which then have events that settle in between.
func (r *Relay) InFlight(source int32, ids []string) map[string]store.FoundInTransit {
	found := map[string]store.FoundInTransit{}
	t := r.term.Load()
	if t == nil {
		return found
	}
	wanted := make(map[string]bool, len(ids))
	for _, id := range ids {
		wanted[id], wanted[strings.ToLower(id)] = true, true // a uuid may come in capitals
	}
	t.inflight.Each(func(d *settle.Delivery) {
		if d.Event.Source == source && wanted[string(d.Event.ID)] {
			found[string(d.Event.ID)] = store.FoundInTransit{Topic: d.Record.Topic, Since: settle.Start.Add(d.Received)}
		}
	})
	return found
}

// inFlight returns the number of events in memory.
func (r *Relay) inFlight() int {
	if t := r.term.Load(); t != nil {
		return t.inflight.Len()
	}
	return 0
}

// sinkStatus returns the sink's status; the zero value before there is one.
func (r *Relay) sinkStatus() (status sink.Status) {
	if t := r.term.Load(); t != nil {
		status = t.engine.Status()
	}
	return status
}

// dismissed is called when another relay has had the slot: what was read of the database is not this process's to tell.
func (r *Relay) dismissed() {
	r.health.Dismiss()
	r.blockers.Forget()
	r.alarms.Forget()
	r.meter.Forget()
}

// SlotLook is the replication slot as it was seen last.
type SlotLook = meter.SlotLook

// Slot returns the slot as this process last read it; nil if it has not done so recently.
func (r *Relay) Slot() *SlotLook { return r.meter.Database.SlotLook(r.c.Postgres.Slot) }
