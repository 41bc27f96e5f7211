package requests

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// Pausing tells whether a person paused the relay. It belongs to the process. The truth is in the state, so
// that it survives a restart; the dispatcher and a catch-up wait on this copy. Events already read are sent
// and recorded, parked events are tried again, and status goes to the server: the slot is kept.
type Pausing struct {
	obeying chan struct{} // has a token while a request to pause or to resume is executed, so that two are never exchanged
	unsure  atomic.Bool   // the state may have changed since it was read

	mu      sync.Mutex
	now     *store.Pause  // nil: not paused; guarded by mu
	changed chan struct{} // closed at the next change; guarded by mu
}

// NewPausing is that of a relay that has not read its state.
func NewPausing() *Pausing { return &Pausing{obeying: make(chan struct{}, 1)} }

// State is the pause, if there is one, and a channel that is closed when that changes.
func (p *Pausing) State() (now *store.Pause, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.now, p.changed
}

// set reports whether it is news.
func (p *Pausing) set(now *store.Pause) (news bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	news = (p.now == nil) != (now == nil)
	p.now = now
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
	return news
}

// Wait returns when the relay is not paused.
func (p *Pausing) Wait(ctx context.Context) error {
	for {
		now, changed := p.State()
		if now == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Obey executes the requests to pause and to resume that are there, in the order in which they were made, and takes in
// what holds then. A session does it before it reads anything, from its own goroutine: what was asked while no relay
// ran, holds.
func (e *Executor) Obey(ctx context.Context) error {
	if e.tables == nil {
		return nil
	}
	select {
	case e.pausing.obeying <- struct{}{}:
		defer func() { <-e.pausing.obeying }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		request, err := e.tables.NextRequest(ctx)
		if err != nil {
			return err
		}
		if request == nil || request.Kind != store.RequestPause && request.Kind != store.RequestResume {
			break
		}
		if request.Kind == store.RequestResume {
			var until time.Time
			if request.Filter.UntilNow {
				until = request.RequestedAt
			}
			e.queue.Resume(until) // before the commit, whose answer may be lost: then no one asks again
		}
		e.pausing.unsure.Store(true)
		if _, err := e.tables.SetPause(ctx, request); err != nil {
			return err
		}
		e.log.Info().Int64("request", request.ID).Str("kind", request.Kind).Str("who", request.Who).Msg("request executed")
	}
	now, err := e.tables.Paused(ctx)
	if err != nil {
		return err
	}
	e.pausing.unsure.Store(false)
	switch news := e.pausing.set(now); {
	case news && now != nil:
		e.log.Warn().Str("by", now.By).Time("since", now.Since).
			Msg("paused; not consuming until cdc-relay resume. Postgres keeps WAL for the slot")
	case news:
		e.log.Info().Msg("resumed")
	}
	return nil
}
