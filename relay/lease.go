package relay

import (
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/store"
)

// lease is the proof that this process holds the slot: the server lets one connection stream from it. A process that was
// frozen and wakes up, or that is cut off, must not go on to produce what another one has taken over; its connection does
// not tell in time, the age of the last proof does. The server gives a silent stream up after wal_sender_timeout, and only
// then grants it to another, so half of that is safe.
type lease struct {
	proved atomic.Int64 // nanoseconds from Relay.started to the last proof; 0: none
}

// prove notes a proof: the server's answer, to a question asked at that time, that our connection is the active one. What
// the stream brings is none: after a freeze the socket's buffer still holds what the server sent while it was ours.
func (r *Relay) prove(at time.Time) { r.lease.proved.Store(max(at.Sub(r.started).Nanoseconds(), 1)) }

// disown forgets the proof: the connection that held the slot is gone, so another relay may have it at once.
func (r *Relay) disown() { r.lease.proved.Store(0) }

// mayProduce says whether the last proof is young enough to start a request.
func (r *Relay) mayProduce() bool {
	proved := r.lease.proved.Load()
	return proved != 0 && time.Since(r.started)-time.Duration(proved) < r.proofValid()
}

func (r *Relay) proofValid() time.Duration { return time.Duration(r.c.Postgres.WALSenderTimeout) / 2 }

// checkLease takes the server's word on who streams from the slot, asked at the given time. If it is not this session, which had
// taken over before it was asked, another relay may have the slot, and the session ends: a stream that is not being read, because a
// catch-up is under way or the window is full, does not tell.
func (r *Relay) checkLease(s *session, owned bool, slot store.SlotStatus, asked time.Time) {
	switch {
	case r.session.Load() != s:
	case slot.Active && int64(slot.ActivePID) == s.grant.PID:
		r.prove(asked)
	case !owned: // TakeOver says why
	case slot.Active:
		s.lose(errLeaseLost)
	default:
		s.lose(errNotStreaming)
	}
}
