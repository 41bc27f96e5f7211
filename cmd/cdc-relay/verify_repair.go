package main

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/store"
	"github.com/cdc-relay/cdc-relay/verify"
)

// repairPortion is how many rows one request names. Requests are executed one after another, so the order of the table is
// kept from one to the next.
const repairPortion = 2000

// repair asks the relay to publish once more what was lost, and notes how many events of it are published.
func (c verifyCommand) repair(ctx context.Context, a *app, st *store.Store, auditor *verify.Auditor, v *verdict) error {
	err := a.confirm(c.Yes, "repair", fmt.Sprintf("This publishes %d events once more, behind what their keys have in the topics by now.", v.Lost))
	if err != nil {
		return err
	}
	slot, err := st.Slot(ctx)
	if err != nil {
		return err
	}
	requests, err := c.ask(ctx, st, auditor)
	if err != nil {
		return err
	}
	v.Repaired = new(int64)
	if !slot.Active {
		v.Notes = append(v.Notes, fmt.Sprintf("the repair is written down (requests %d to %d); no relay holds the slot, it will be done when one runs", requests[0], requests[len(requests)-1]))
		return nil
	}
	q := asking{a: a, st: st, kind: store.RequestRepublish, flags: askFlags{Wait: true}}
	for _, id := range requests {
		r, err := q.follow(ctx, id)
		if err != nil {
			return err
		}
		if r.Error != "" {
			return fmt.Errorf("the relay refused request %d: %s", id, plain(r.Error))
		}
		*v.Repaired += r.Done - r.Waiting
		if r.Waiting > 0 {
			v.Notes = append(v.Notes, fmt.Sprintf("%d events of request %d wait among the parked events and go out when they can: cdc-relay parked list", r.Waiting, id))
		}
	}
	return nil
}

// ask writes the requests.
func (c verifyCommand) ask(ctx context.Context, st *store.Store, auditor *verify.Auditor) (requests []int64, err error) {
	var ids []string
	write := func() error {
		id, err := st.AddRequest(ctx, store.RequestRepublish, store.Filter{IDs: ids}, userAtHost(), c.Note)
		requests, ids = append(requests, id), nil
		return err
	}
	err = auditor.Lost(func(id string) error {
		if ids = append(ids, id); len(ids) < repairPortion {
			return nil
		}
		return write()
	})
	if err == nil && len(ids) > 0 {
		err = write()
	}
	return requests, err
}
