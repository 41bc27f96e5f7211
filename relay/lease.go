package relay

import (
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/store"
)

// lease is the proof that this process holds the slot: the server lets one connection stream from it. A process that
// was frozen and wakes up, or that is cut off, must not go on to produce what another one has taken over; its
// connection does not tell in time, the age of the last proof does. The server gives a silent stream up after
// wal_sender_timeout, and only then grants it to another, so half of that is safe.
//
// It belongs to a term: what an earlier one still had in its hands can never use the proof of the next.
type lease struct {
	origin time.Time     // its monotonic clock is what counts
	valid  time.Duration // how old a proof may be; see proofValid
	proved atomic.Int64  // nanoseconds from origin to the last proof; 0: none
}

// proofValid is how old a proof may be.
func proofValid(c config.Config) time.Duration { return time.Duration(c.Postgres.WALSenderTimeout) / 2 }

// prove notes a proof: the server's answer, to a question asked at that time, that our connection is the active one.
// What the stream brings is none: after a freeze the socket's buffer still holds what the server sent while it was
// ours.
func (l *lease) prove(at time.Time) { l.proved.Store(max(at.Sub(l.origin).Nanoseconds(), 1)) }

// disown forgets the proof: the connection that held the slot is gone, so another relay may have it at once.
func (l *lease) disown() { l.proved.Store(0) }

// mayProduce reports whether the last proof is young enough to start a request.
func (l *lease) mayProduce() bool {
	proved := l.proved.Load()
	return proved != 0 && time.Since(l.origin)-time.Duration(proved) < l.valid
}

// checkLease takes the server's word on who streams from the slot, asked at the given time. If it is not this session,
// which had taken over before it was asked, another relay may have the slot, and the session ends: a stream that is
// not being read, because a catch-up is under way or the window is full, does not tell.
func (t *term) checkLease(s *session, owned bool, slot store.SlotStatus, asked time.Time) {
	switch {
	case t.session.Load() != s:
	case slot.Active && int64(slot.ActivePID) == s.grant.PID:
		t.lease.prove(asked)
	case !owned: // TakeOver says why
	case slot.Active:
		s.lose(errLeaseLost)
	default:
		s.lose(errNotStreaming)
	}
}
