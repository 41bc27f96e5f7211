package audit

import (
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/doctor/verify"
)

// pending are the ids of rows that nothing is recorded of and that no topic has shown yet: up to pendingMost, beyond
// which no one waits for them one by one.
type pending struct {
	mu  sync.Mutex // guards the rest
	ids map[string]verify.Made
	all int // that were added
}

func (p *pending) add(id string, made verify.Made) {
	if p.all++; p.ids == nil {
		p.ids = map[string]verify.Made{}
	}
	if len(p.ids) < pendingMost {
		p.ids[id] = made
	}
}

// seen takes in a record. One of an event that had the id before is not the row's.
func (p *pending) seen(r *verify.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if made, waits := p.ids[r.ID]; waits && !made.Another(r.Made) {
		delete(p.ids, r.ID)
	}
}

// left is how many are waited for, and whether there were too many to wait.
func (p *pending) left() (n int, tooMany bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ids), p.all > pendingMost
}
