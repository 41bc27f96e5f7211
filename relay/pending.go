package relay

import (
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/outbox"
)

// leastEventBytes is the least WAL that an event is taken to need in the estimate of the backlog.
const leastEventBytes = 256

// mostLooks bounds what unread remembers: an outage is told in so many steps, or half as many.
const mostLooks = 512

// unread remembers when the server's WAL was seen to end where. So it is known for how long what the stream has not delivered has been
// waiting, at least: in a pause, with the breaker open, in a halt.
type unread struct {
	mu    sync.Mutex
	looks []walLook     // each ends behind the one before; guarded by mu
	apart time.Duration // the least between two of them; guarded by mu
}

type walLook struct {
	at  time.Time
	end outbox.LSN
}

// note takes in a look at the server. A WAL that ends earlier than before is another server's.
func (u *unread) note(at time.Time, end outbox.LSN) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if n := len(u.looks); n > 0 {
		switch last := u.looks[n-1]; {
		case end < last.end:
			u.looks, u.apart = u.looks[:0], 0
		case end == last.end, at.Sub(last.at) < u.apart: // what came in between counts as younger than it is
			return
		case n == mostLooks:
			for i := range n / 2 {
				u.looks[i] = u.looks[2*i]
			}
			u.looks = u.looks[:n/2]
			u.apart = 2 * max(u.apart, at.Sub(last.at))
		}
	}
	u.looks = append(u.looks, walLook{at, end})
}

// age is for how long there has been WAL behind the position, at least; 0 when there is none.
func (u *unread) age(read outbox.LSN) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	passed := 0
	for passed < len(u.looks) && u.looks[passed].end <= read {
		passed++
	}
	u.looks = append(u.looks[:0], u.looks[passed:]...)
	if len(u.looks) == 0 {
		u.apart = 0
		return 0
	}
	return time.Since(u.looks[0].at)
}

// takenLSN is up to where the dispatcher has taken what the stream delivers, which is less than what was received in a pause; and
// between two sessions, or during a halt, what is confirmed. 0: not known.
func (r *Relay) takenLSN() outbox.LSN {
	if s := r.session(); s != nil {
		return max(outbox.LSN(s.taken.Load()), s.grant.Confirmed)
	}
	return r.confirmedLSN()
}

// lagAge is how long ago the oldest transaction was committed that is not confirmed. Of what was not taken from the stream it is not
// known which transactions it holds, and when they committed: it counts as old as it was seen to be.
func (r *Relay) lagAge() (age time.Duration) {
	if s := r.session(); s != nil {
		if at, some := s.ledger.Oldest(); some {
			age = max(time.Since(time.UnixMicro(at)), 0)
		}
	}
	if taken := r.takenLSN(); taken != 0 {
		age = max(age, r.seen.unread.age(taken))
	}
	return age
}

// pendingAge is lagAge with the events that are parked; these are as old as it was when they were parked.
func (r *Relay) pendingAge() time.Duration {
	age := r.lagAge()
	if at := r.seen.oldestParked.Load(); at != 0 && r.Parked() > 0 {
		age = max(age, time.Since(time.UnixMicro(at)))
	}
	return age
}

// backlog is what was received or parked and is not terminal, plus an estimate of what is still in the WAL by the WAL that events
// have needed so far.
func (r *Relay) backlog() int64 {
	n := int64(r.inFlight()) + r.Parked()
	slot, taken := r.metrics.slot.Load(), r.takenLSN()
	if slot == nil || taken == 0 || slot.WALEnd <= taken {
		return n
	}
	if s := r.session(); s != nil {
		if events := int64(s.events.Load()); events > 0 && taken > s.grant.Confirmed {
			r.seen.eventBytes.Store(int64(taken-s.grant.Confirmed) / events)
		}
	}
	return n + int64(slot.WALEnd-taken)/max(leastEventBytes, r.seen.eventBytes.Load())
}
