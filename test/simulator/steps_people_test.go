package simulator

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

var peopleSteps = []stepOf{
	{"ask", false, 5, func(p *drill, c *caller, d *dice) (string, error) {
		kind := one(d, store.RequestReplay, store.RequestReplay, store.RequestDiscard, store.RequestRetry, store.RequestPause,
			store.RequestResume, store.RequestReconcile, store.RequestRepublish)
		key := "k" + string(rune('0'+d.below(3)))
		f := one(d, store.Filter{All: true}, store.Filter{Key: &key})
		if rows := p.rows(d); kind == store.RequestRepublish || len(rows) > 0 && d.chance(0.3) {
			f = store.Filter{}
			for _, r := range rows {
				f.IDs = append(f.IDs, r.id)
			}
			if len(f.IDs) == 0 {
				return "nothing", nil
			}
		}
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		p.w.askOf(c.slot, kind, f)
		return kind, nil
	}},
	{"work", true, 9, func(p *drill, c *caller, d *dice) (string, error) {
		r, err := c.NextRequest(p.ctx)
		if err != nil || r == nil {
			return "nothing", err
		}
		return fmt.Sprint(r.ID, r.Kind), p.work(c, r, d)
	}},
	{"finish", true, 2, func(p *drill, c *caller, d *dice) (string, error) {
		r, err := c.NextRequest(p.ctx)
		if err != nil || r == nil {
			return "nothing", err
		}
		if err := c.NoteRequest(p.ctx, r.ID, 3, 2); err != nil {
			return fmt.Sprint(r.ID), err
		}
		return fmt.Sprint(r.ID), c.FinishRequest(p.ctx, r.ID, one(d, "", "why"))
	}},
	{"paused", false, 1, func(p *drill, c *caller, _ *dice) (string, error) {
		now, err := c.Paused(p.ctx)
		return fmt.Sprint(now != nil), err
	}},
}

// work does the next portion of a request.
func (p *drill) work(c *caller, r *store.Request, d *dice) (err error) {
	if r.Kind != store.RequestPause && r.Kind != store.RequestResume {
		if err := c.StartRequest(p.ctx, r); err != nil {
			return err
		}
	}
	var step store.Step
	switch r.Kind {
	case store.RequestPause, store.RequestResume:
		_, err = c.SetPause(p.ctx, r)
		return err
	case store.RequestReplay:
		step, err = c.ReplayDead(p.ctx, r, c.cursor[r.ID], one(d, 1, 100))
	case store.RequestDiscard:
		step, err = c.DiscardDead(p.ctx, r, c.cursor[r.ID], one(d, 1, 100))
	case store.RequestRetry:
		_, err = c.RetryNow(p.ctx, r, 100)
	case store.RequestRepublish:
		return p.republish(c, r, d)
	}
	if err != nil {
		return err
	}
	c.cursor[r.ID] = step.Next
	return nil
}

func (p *drill) republish(c *caller, r *store.Request, d *dice) error {
	rows, err := c.RepublishRows(p.ctx, r, 100)
	if err != nil || len(rows) == 0 {
		return err
	}
	var events []store.Parked
	for i := range rows {
		row := p.w.server.table.byID[string(rows[i].Event.ID)]
		e := rows[i].Event
		e.Position = outbox.Position{Epoch: 1, Table: true, Order: uint64(r.ID)<<20 + uint64(i)}
		events = append(events, store.Parked{Event: &e, Topic: row.topic, Key: row.keyBytes(), Class: outbox.Transient,
			RetryIn: one(d, 0, store.NotDue), Text: "lost"})
	}
	_, err = c.Republish(p.ctx, r, events)
	return err
}
