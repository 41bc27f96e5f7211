package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/message"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/internal/run/outboxes"
	"github.com/cdc-relay/cdc-relay/internal/settle"
	"github.com/cdc-relay/cdc-relay/internal/settle/alarms"
	"github.com/cdc-relay/cdc-relay/internal/settle/requests"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/internal/upkeep"
	"github.com/cdc-relay/cdc-relay/internal/upkeep/reconcile"
	"github.com/cdc-relay/cdc-relay/sink"
)

// This file is the doors through which rooms call back: the term, or its session, as each of them sees it. Reads of the
// term's pointers and of what guards itself; any goroutine may call it.

// host is the term as its settler sees it: a [settle.Host].
type host struct{ t *term }

func (h host) Owner() settle.Session {
	if s := h.t.owner(); s != nil {
		return s
	}
	return nil
}

func (h host) Streaming() settle.Session {
	if s := h.t.streaming(); s != nil {
		return s
	}
	return nil
}

func (h host) Stopping() bool { return h.t.stopping.Load() }

func (h host) CannotRecord(what string, err error) (news bool) {
	return h.t.r.health.CannotRecord(what, err)
}
func (h host) Recorded(what string)                   { h.t.r.health.Recorded(what) }
func (h host) Died(topic string, reason *sink.Reason) { h.t.r.health.Died(topic, reason) }
func (h host) Trace(records []*sink.Record)           { h.t.r.trace(records) }

// Trip halts the relay, which keeps its session. What it was before shows again when the halt is lifted.
func (h host) Trip(why *halt.Error) {
	h.t.r.health.KeepRole()
	h.t.r.halted(why)
	if s := h.t.session.Load(); s != nil && h.t.r.c.OnHalt == config.OnHaltExit {
		s.fail(why)
	}
}

// Lift ends the halt, unless the relay halted for another reason since; without a session one begins, or will.
func (h host) Lift(why *halt.Error) {
	if h.t.session.Load() != nil && h.t.r.health.HaltedBy(why) {
		h.t.r.health.EnterKept()
	}
}

func (h host) AnsweredSince(at time.Time) bool {
	driver, tells := h.t.r.driver.(interface{ AnsweredSince(time.Time) bool })
	return !tells || driver.AnsweredSince(at)
}

// enter changes the role to one in which events flow. While the settler's breaker is open the relay stays halted, and
// the role shows when that is over.
func (t *term) enter(role Role) {
	t.settler.WithBreaker(func(tripped *halt.Error) {
		if tripped == nil {
			t.r.health.Enter(role)
			return
		}
		t.r.health.Keep(role)
		t.r.halted(tripped)
		if s := t.session.Load(); s != nil && t.r.c.OnHalt == config.OnHaltExit { // Trip found no session to end
			s.fail(tripped)
		}
	})
}

// streaming is the session if it has come so far that parked events may be retried as far as the relay is concerned:
// it has the slot, reads its stream, and no stop was asked for. Nil: there is none.
func (t *term) streaming() *session {
	s := t.session.Load()
	if s == nil || t.stopping.Load() || t.r.health.Role() != RoleActive {
		return nil
	}
	return s
}

// Heed, Passed and Encoder make a session a [settle.Session], with Era a [requests.Session].
func (s *session) Heed(err error) { s.heed(err) }

// Passed is up to which result of the sink the redelivery was handed in, and one more; 0: it is not over.
func (s *session) Passed() uint64 { return s.passed.Load() }

// Encoder is the one for parked events.
func (s *session) Encoder() settle.Encoder { return parkedEncoder{s} }

// Era is that of the positions of an outbox's events. It may change until Passed is not 0 any more.
func (s *session) Era(of int32) int64 {
	if o := s.r.numbered(of); o != nil {
		return o.Recorded().Era
	}
	return s.state.Era
}

// numbered is one of several outboxes by the number of its events, nil if there is one only, or its table is gone.
func (r *Relay) numbered(source int32) *outboxes.Outbox {
	if r.outboxes == nil {
		return nil
	}
	return r.outboxes.Numbered(source)
}

// requestsHost is a term as what people ask for sees it: a [requests.Host].
type requestsHost struct{ host }

func (h requestsHost) Asking() requests.Session {
	if s := h.t.owner(); s != nil {
		return s
	}
	return nil
}

// Hears is false for what stands behind events that wait, and for a relay that reads nothing.
func (h requestsHost) Hears() bool {
	s := h.t.session.Load()
	paused, _ := h.t.r.pausing.State()
	return s != nil && s.passed.Load() != 0 && !s.spools() && paused == nil && h.t.r.health.Role() == RoleActive &&
		!h.t.behind()
}

func (h requestsHost) Router(ctx context.Context, of int32) (requests.Router, error) {
	c, read := h.t.r.c, h.t.r.store.Outbox
	if of != 0 {
		o := h.t.r.numbered(of)
		if o == nil {
			return nil, fmt.Errorf("%w: no outbox has the number %d, or its table is gone", store.ErrCannot, of)
		}
		c.Outbox.Table, read = config.JoinTable(o.Schema, o.Name), o.SQL.Outbox
	}
	table, err := read(ctx)
	if err != nil {
		return nil, err
	}
	return message.New(c, message.Columns(c), table.PayloadType, message.Hooks{Shadowed: func() {}})
}

func (h requestsHost) Look(ctx context.Context) (unrecorded, missed int, err error) {
	report, err := h.t.r.Reconcile(ctx)
	return report.Unrecorded, report.Missed, err
}

// upkeepHost is a term as package upkeep sees it.
type upkeepHost struct{ t *term }

func (t *term) newKeeper() *upkeep.Keeper {
	return upkeep.New(t.r.c, t.r.store, upkeepHost{t}, t.r.log)
}

func (h upkeepHost) HoldsSlot() bool           { return h.t.session.Load() != nil }
func (h upkeepHost) Active() bool              { return h.t.r.health.Role() == RoleActive }
func (h upkeepHost) Progress() <-chan struct{} { return h.t.settler.Progress() }

// Behind is true also while something is spooled, which is looked up in the journal and among the dead letters.
func (h upkeepHost) Behind() bool {
	s := h.t.session.Load()
	return h.t.behind() || s != nil && s.spools()
}

func (h upkeepHost) Owner() func(error) { return h.t.owner().heed }
func (h upkeepHost) Marked(rows int)    { h.t.r.health.Marked(); h.t.r.meter.Database.Marked(rows) }

func (h upkeepHost) CannotMark(err error) (news bool) { return h.t.r.health.CannotMark(err) }

// keepAlarms runs the keeper of alarms, where the tables can hold them.
func (t *term) keepAlarms(ctx context.Context) {
	if tables, can := t.r.store.(alarms.Tables); can {
		t.r.alarms.Run(ctx, tables, host{t})
	}
}

// Owns makes it an [alarms.Host], too.
func (h host) Owns() bool { return h.t.owner() != nil }

// Idle is for the same.
func (h host) Idle() bool { return h.t.inflight.Len() == 0 }

// reconcileHost is a term as package reconcile sees it.
type reconcileHost struct{ t *term }

// Stream is the session in which a round may begin: this process holds the slot, reads the stream, what came again
// after the start is over, and nothing is spooled.
func (h reconcileHost) Stream() reconcile.Stream {
	s := h.t.session.Load()
	if s == nil || s.passed.Load() == 0 || s.spools() || h.t.stopping.Load() || h.t.r.health.Role() != RoleActive {
		return nil
	}
	return reconcileStream{s}
}

func (h reconcileHost) Behind() bool       { return h.t.behind() }
func (h reconcileHost) LateInFlight() int  { return h.t.inflight.Late() }
func (h reconcileHost) Settled() uint64    { return h.t.r.meter.Outcomes.Settled() }
func (h reconcileHost) Missed(rows int)    { h.t.r.health.Reconciled(rows) }
func (h reconcileHost) Published(rows int) { h.t.r.meter.Stream.Reconciled.Add(float64(rows)) }

func (h reconcileHost) Clean(began time.Time) {
	h.t.r.meter.Database.Audited(began)
	h.t.r.health.Reconciled(0)
}

// reconcileStream is a session as package reconcile sees it.
type reconcileStream struct{ s *session }

func (x reconcileStream) Epoch() int64              { return x.s.epoch }
func (x reconcileStream) Mark(m *reconcile.Mark)    { x.s.mark.Store(m) }
func (x reconcileStream) Passed(at outbox.LSN) bool { return x.s.ledger.Confirmed() >= at }
func (x reconcileStream) Over() <-chan struct{}     { return x.s.over }
func (x reconcileStream) Heed(err error)            { x.s.heed(err) }
