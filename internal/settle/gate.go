package settle

import (
	"context"
	"sync"
	"time"
)

// gate pauses the dispatcher while a lane is handed back to it; it is open unless a lane has paused it. Its zero value
// is open, and any goroutine may use it.
type gate struct {
	mu     sync.Mutex
	names  map[laneName]struct{} // lanes for which it is paused; guarded by mu
	opened chan struct{}         // closed when it is open again; guarded by mu, nil when nothing is paused
	until  time.Time             // guarded by mu
}

// restAfter is for how many times its length the gate stays open after a pause that ran out.
const restAfter = 4

// pause stops the gate for the lane, at most handOver. A lane that pauses it again does not extend it; one that could
// not be handed over in that time gets another pause after a while.
func (g *gate) pause(name laneName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.names == nil {
		g.names = map[laneName]struct{}{}
	}
	g.names[name] = struct{}{}
	if g.opened == nil {
		g.opened = make(chan struct{})
	}
	if now := time.Now(); now.After(g.until.Add(restAfter * handOver)) {
		g.until = now.Add(handOver)
	}
}

// resume ends the lane's pause.
func (g *gate) resume(name laneName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.names, name)
	if len(g.names) == 0 && g.opened != nil {
		close(g.opened)
		g.opened = nil
	}
}

// wait returns when the gate is open, or has been paused for long enough.
func (g *gate) wait(ctx context.Context) {
	g.mu.Lock()
	opened, left := g.opened, time.Until(g.until)
	g.mu.Unlock()
	if opened == nil || left <= 0 {
		return
	}
	select {
	case <-opened:
	case <-time.After(left):
	case <-ctx.Done():
	}
}
