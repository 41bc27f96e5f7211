package relay

import (
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay/internal/halt"
	"github.com/cdc-relay/cdc-relay/relay/internal/settle"
	"github.com/cdc-relay/cdc-relay/sink"
)

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

// enter changes the role to one in which events flow. While the settler's breaker is open the relay stays halted, and the
// role shows when that is over.
func (t *term) enter(role Role) {
	t.settler.WithBreaker(func(tripped *halt.Error) {
		if tripped == nil {
			t.r.health.Enter(role)
			return
		}
		t.r.health.Keep(role)
		t.r.halted(tripped)
	})
}

// streaming is the session if it has come so far that parked events may be retried as far as the relay is concerned: it has
// the slot, reads its stream, and nobody has asked for a stop. Nil: there is none.
func (t *term) streaming() *session {
	s := t.session.Load()
	if s == nil || t.stopping.Load() || t.r.health.Role() != RoleActive {
		return nil
	}
	return s
}

// Heed, Passed and Encoder make a session a [settle.Session].
func (s *session) Heed(err error) { s.heed(err) }

// Passed is up to which result of the sink the redelivery was handed in, and one more; 0: it is not over.
func (s *session) Passed() uint64 { return s.passed.Load() }

// Encoder is the one for parked events.
func (s *session) Encoder() settle.Encoder { return s.again }
