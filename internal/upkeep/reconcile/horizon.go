package reconcile

import (
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// horizon finds a time that no running or prepared transaction began before: rows of the transactions that began before
// it can all be seen, so that a round that finds them recorded need not look at them again. Rows carry the time of
// their insertion at best, and become visible at their commit, in any order; so the time of a round is no horizon until
// everything that ran then is over.
type horizon struct {
	next     time.Time       // may be the horizon when what is waited for is over; zero: none is looked for
	waitFor  map[string]bool // transactions that ran then and are not over
	prepared bool            // those without a number are over; waitFor holds what they may have prepared
}

// advance takes in what runs now and says whether next may be the horizon: then the caller looks at the rows, and takes
// it. A transaction of a session may be prepared and outlive its session, under another name; so the sessions come
// first, then whatever is prepared when they are gone.
func (h *horizon) advance(now store.Running) (passed bool) {
	if h.next.IsZero() {
		h.next, h.waitFor, h.prepared = now.Now, set(now.Sessions), false
	}
	running := now.Sessions
	if h.prepared {
		running = now.Prepared
	}
	for name := range h.waitFor {
		if !slices.Contains(running, name) {
			delete(h.waitFor, name)
		}
	}
	if len(h.waitFor) == 0 && !h.prepared {
		h.prepared, h.waitFor = true, set(now.Prepared)
	}
	return len(h.waitFor) == 0
}

func set(names []string) map[string]bool {
	s := make(map[string]bool, len(names))
	for _, name := range names {
		s[name] = true
	}
	return s
}
