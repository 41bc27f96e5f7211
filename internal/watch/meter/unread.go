package meter

import (
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// mostLooks bounds what unread remembers: an outage is told in so many steps, or half as many.
const mostLooks = 512

// unread remembers when the server's WAL was seen to end where. So it is known for how long what the stream has not
// delivered has been waiting, at least: in a pause, with the breaker open, in a halt.
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
