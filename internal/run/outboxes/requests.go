package outboxes

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// This file sends what people ask for to the outbox that they name.

// asked is the outbox that a request is about.
func (t *Tables) asked(r *store.Request) (*Outbox, error) {
	if r.Filter.Source == 0 {
		return nil, fmt.Errorf("%w: the request names none of the outboxes", store.ErrCannot)
	}
	if o := t.withNumber(r.Filter.Source); o != nil {
		return o, nil
	}
	return nil, fmt.Errorf("%w: no outbox has the number %d", store.ErrCannot, r.Filter.Source)
}

// Numbered is the outbox with the number, nil if its table is gone.
func (t *Tables) Numbered(source int32) *Outbox { return t.numberedAs(source) }

// Has reports whether an outbox has the number, be its table there or not.
func (t *Tables) Has(source int32) bool { return t.withNumber(source) != nil }

// Names are schema.table of all outboxes that have a number, by that.
func (t *Tables) Names() map[int32]string {
	all := t.Known()
	names := make(map[int32]string, len(all))
	for _, o := range all {
		names[o.Source] = o.Schema + "." + o.Name
	}
	return names
}

// StartRequest notes that work on the request begins. What names no outbox is about the relay as a whole.
func (t *Tables) StartRequest(ctx context.Context, r *store.Request) error {
	if r.Filter.Source == 0 {
		return t.slot.StartRequest(ctx, r)
	}
	o, err := t.asked(r)
	if err != nil {
		return err
	}
	return o.StartRequest(ctx, r)
}

// ReplayDead replays dead letters of the outbox that the request names.
func (t *Tables) ReplayDead(ctx context.Context, r *store.Request, from store.DeadCursor,
	limit int) (store.Step, error) {
	o, err := t.asked(r)
	if err != nil {
		return store.Step{}, err
	}
	return o.ReplayDead(ctx, r, from, limit)
}

// DiscardDead discards dead letters of the outbox that the request names.
func (t *Tables) DiscardDead(ctx context.Context, r *store.Request, from store.DeadCursor,
	limit int) (store.Step, error) {
	o, err := t.asked(r)
	if err != nil {
		return store.Step{}, err
	}
	return o.DiscardDead(ctx, r, from, limit)
}

// RetryNow makes parked events due of the outbox that the request names.
func (t *Tables) RetryNow(ctx context.Context, r *store.Request, limit int) (int64, error) {
	o, err := t.asked(r)
	if err != nil {
		return 0, err
	}
	return o.RetryNow(ctx, r, limit)
}

// RepublishRows gives the next rows of the outbox that the request names. What cannot be read of its table ends the
// request: others are behind it.
func (t *Tables) RepublishRows(ctx context.Context, r *store.Request, limit int) ([]store.CatchUpRow, error) {
	o, err := t.asked(r)
	if err != nil {
		return nil, err
	}
	why := o.why.Load()
	if o.gone.Load() {
		return nil, fmt.Errorf("%w: there is no table %s any more", store.ErrCannot, o.name())
	}
	var rows []store.CatchUpRow
	if why == nil {
		if rows, err = o.RepublishRows(ctx, r, limit); err != nil {
			why = o.blame(err)
		}
	}
	if why != nil {
		return nil, fmt.Errorf("%w: %s; %s, then ask again", store.ErrCannot, why.Reason, why.Remedy)
	}
	return rows, err
}

// Republish parks rows of the outbox that the request names.
func (t *Tables) Republish(ctx context.Context, r *store.Request, events []store.Parked) (int64, error) {
	o, err := t.asked(r)
	if err != nil {
		return 0, err
	}
	return o.Republish(ctx, r, events)
}
