package audit

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/store"
	"github.com/cdc-relay/cdc-relay/verify"
)

// repairPortion is how many rows one request names. Requests are executed one after another, so the order of the table
// is kept from one to the next.
const repairPortion = 2000

// Repair is who asks the relay to publish once more what was lost, and how the outcome of a request is waited for.
type Repair struct {
	Who, Note string
	Follow    func(ctx context.Context, request int64) (*store.Request, error)
}

// do asks the relay, and notes how many events of it are published.
func (r *Repair) do(ctx context.Context, st *store.Store, auditor *verify.Auditor, v *Verdict) error {
	slot, err := st.Slot(ctx)
	if err != nil {
		return err
	}
	requests, err := r.ask(ctx, st, auditor)
	if err != nil {
		return err
	}
	v.Repaired = new(int64)
	if !slot.Active {
		v.Notes = append(v.Notes, fmt.Sprintf("the repair is queued (requests %d to %d); no relay is running on the slot, "+
			"so it is done when one starts", requests[0], requests[len(requests)-1]))
		return nil
	}
	for _, id := range requests {
		done, err := r.Follow(ctx, id)
		if err != nil {
			return err
		}
		*v.Repaired += done.Done - done.Waiting
		if done.Waiting > 0 {
			v.Notes = append(v.Notes, fmt.Sprintf("%d events of request %d wait among the parked events and go out when they "+
				"can: cdc-relay parked list", done.Waiting, id))
		}
	}
	return nil
}

// ask writes the requests.
func (r *Repair) ask(ctx context.Context, st *store.Store, auditor *verify.Auditor) (requests []int64, err error) {
	var ids []string
	write := func() error {
		id, err := st.AddRequest(ctx, store.RequestRepublish, store.Filter{IDs: ids}, r.Who, r.Note)
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
