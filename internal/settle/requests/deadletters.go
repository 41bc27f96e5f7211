package requests

import (
	"context"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

const (
	// requestPortion is how many dead letters one transaction resolves, retryPortion how many parked events it makes due.
	requestPortion = 500
	retryPortion   = 5000
	// A replay leaves room for events that must be parked: it fills no more than this part of limits.parked_events.
	replayShare = 2
)

func (e *Executor) replay(ctx context.Context, request *store.Request) (more bool, err error) {
	most, full := e.portion(requestPortion)
	if most <= 0 {
		return false, nil // until some of what is parked is published
	}
	step, err := e.tables.ReplayDead(ctx, request, e.cursor, most)
	if err != nil {
		return false, err
	}
	if step.Seen == 0 {
		return true, e.finish(ctx, request, "")
	}
	e.cursor = step.Next
	e.queue.AddParked(step.Parked)
	e.queue.DueNow()
	return !full, nil
}

// portion is how many events, at most so many, a request may park at this look, and whether the room is full. With
// retry.on_dead: hold one goes in all the same: what fills the room may be parked behind the very dead letters that
// are to be replayed, or behind dead letters that a later request decides.
func (e *Executor) portion(most int) (events int, full bool) {
	room := e.room()
	if room <= 0 && e.c.Retry.OnDead == config.OnDeadHold {
		return 1, true
	}
	return min(most, room), room <= 0
}

// room is how many events a replay may park now.
func (e *Executor) room() int {
	parked := e.queue.Parked()
	if parked <= 0 {
		return max(e.c.Limits.ParkedEvents/replayShare, 1)
	}
	return int(int64(e.c.Limits.ParkedEvents/replayShare) - parked)
}

func (e *Executor) discard(ctx context.Context, request *store.Request) (more bool, err error) {
	step, err := e.tables.DiscardDead(ctx, request, e.cursor, requestPortion)
	if err != nil {
		return false, err
	}
	if step.Seen == 0 {
		return true, e.finish(ctx, request, "")
	}
	e.cursor = step.Next
	if e.c.Retry.OnDead == config.OnDeadHold {
		for _, lane := range step.Lanes { // nothing holds it any more
			e.queue.Revisit(lane)
		}
		e.queue.Nudge()
	}
	return true, nil
}

func (e *Executor) retry(ctx context.Context, request *store.Request) (more bool, err error) {
	n, err := e.tables.RetryNow(ctx, request, retryPortion)
	if err != nil {
		return false, err
	}
	if n == 0 {
		return true, e.finish(ctx, request, "")
	}
	e.queue.DueNow()
	return true, nil
}
