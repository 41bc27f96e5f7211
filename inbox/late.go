package inbox

import (
	"time"

	"github.com/cdc-relay/cdc-relay/inbox/internal/ledger"
)

// batchStretch is how often BatchTime may pass before a transaction begins no more events: the number of events was
// chosen for one BatchTime, by how long handlers took before.
const batchStretch = 5

// late reports whether the transaction has taken so long that the rest of its events is handed back. So an event waits
// for slow neighbours for no longer than that, and for one handler.
func (s *session) late(r *run) bool {
	return r.divisible && r.handled > 0 && r.took > batchStretch*max(s.c.config.BatchTime, time.Millisecond)
}

// handBack takes the claims of events back whose turn did not come, and returns the others.
func (s *session) handBack(r *run, tx *ledger.Tx, fresh []*task) (handled []*task, err error) {
	n := 0
	for _, t := range fresh {
		if t.begun {
			n++
		}
	}
	if n == len(fresh) {
		return fresh, nil
	}
	var ids []ledger.ID
	for _, t := range fresh {
		if t.begun {
			handled = append(handled, t)
			continue
		}
		t.status = statusLeft
		ids = append(ids, t.id)
	}
	return handled, s.ledger.HandBack(r.ctx, tx, ids)
}
