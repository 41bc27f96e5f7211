package relay

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/cdc-relay/cdc-relay/store"
)

// pausing is whether a person wants nothing to be taken in. The truth is in the state, so that it survives a restart; this
// is what the dispatcher and a catch-up wait for. What was taken in before is sent and recorded, parked events are tried
// again, and status goes to the server: the slot is kept.
type pausing struct {
	obeying chan struct{} // has a token while a request to pause or to resume is executed, so that two are never exchanged
	unsure  atomic.Bool   // the state may have changed since it was read

	mu      sync.Mutex
	now     *store.Pause  // nil: not paused; guarded by mu
	changed chan struct{} // closed at the next change; guarded by mu
}

// state is the pause, if there is one, and a channel that is closed when that changes.
func (p *pausing) state() (now *store.Pause, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.now, p.changed
}

// set says whether it is news.
func (p *pausing) set(now *store.Pause) (news bool) {
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

// wait returns when the relay is not paused.
func (p *pausing) wait(ctx context.Context) error {
	for {
		now, changed := p.state()
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

// obey executes the requests to pause and to resume that are there, in the order in which they were made, and takes in
// what holds then. A session does it before it reads anything: what was asked while no relay ran, holds.
func (t *term) obey(ctx context.Context) error {
	tables, can := t.r.store.(requests)
	if !can {
		return nil
	}
	select {
	case t.r.pausing.obeying <- struct{}{}:
		defer func() { <-t.r.pausing.obeying }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		request, err := tables.NextRequest(ctx)
		if err != nil {
			return err
		}
		if request == nil || request.Kind != store.RequestPause && request.Kind != store.RequestResume {
			break
		}
		if request.Kind == store.RequestResume {
			t.settler.Resume() // before the commit, whose answer may be lost: then nobody asks again
		}
		t.r.pausing.unsure.Store(true)
		if _, err := tables.SetPause(ctx, request); err != nil {
			return err
		}
		t.r.log.Info().Int64("request", request.ID).Str("kind", request.Kind).Str("who", request.Who).Msg("request executed")
	}
	now, err := tables.Paused(ctx)
	if err != nil {
		return err
	}
	t.r.pausing.unsure.Store(false)
	switch news := t.r.pausing.set(now); {
	case news && now != nil:
		t.r.log.Warn().Str("by", now.By).Time("since", now.Since).Msg("paused: nothing is taken in until cdc-relay resume; Postgres keeps WAL for the slot meanwhile")
	case news:
		t.r.log.Info().Msg("resumed")
	}
	return nil
}
