package audit

import "sync"

// pending are the ids of rows that nothing is recorded of and that no topic has shown yet: up to pendingMost, beyond
// which no one waits for them one by one.
type pending struct {
	mu  sync.Mutex // guards the rest
	ids map[string]struct{}
	all int // that were added
}

func (p *pending) add(id string) {
	if p.all++; p.ids == nil {
		p.ids = map[string]struct{}{}
	}
	if len(p.ids) < pendingMost {
		p.ids[id] = struct{}{}
	}
}

func (p *pending) seen(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.ids, id)
}

// left is how many are waited for, and whether there were too many to wait.
func (p *pending) left() (n int, tooMany bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ids), p.all > pendingMost
}
