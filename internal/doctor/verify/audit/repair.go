package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/doctor/verify"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// repairPortion is how many rows one request names. Requests are executed one after another, so the order of the table
// is kept from one to the next.
const repairPortion = 2000

// Repair is who asks the relay to publish once more what was lost, and how the outcome of a request is waited for.
type Repair struct {
	Who, Note string
	Follow    func(ctx context.Context, request int64) (*store.Request, error)

	// until is the database's time before the audit read the table: what was published later may be in the topics.
	until time.Time
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
		if done.Total != nil && done.Done < *done.Total {
			v.Notes = append(v.Notes, fmt.Sprintf("%d events of request %d were not published again: that has happened since "+
				"this audit began, as by another repair, or their rows are gone. Verify again", *done.Total-done.Done, id))
		}
		if done.Waiting > 0 {
			v.Notes = append(v.Notes, fmt.Sprintf("%d events of request %d wait among the parked events and go out when they "+
				"can: cdc-relay parked list", done.Waiting, id))
		}
	}
	dead, err := r.dead(ctx, st, auditor)
	if dead > 0 {
		*v.Repaired -= dead
		v.Notes = append(v.Notes, fmt.Sprintf(
			"%d of the events became dead letters, because the broker refuses them: cdc-relay dlq list", dead))
	}
	return err
}

// dead is how many of the lost events are open dead letters now: a journaled one was none before.
func (r *Repair) dead(ctx context.Context, st *store.Store, auditor *verify.Auditor) (dead int64, err error) {
	err = inPortions(auditor, func(ids []string) error {
		n, err := st.Count(ctx, store.RequestReplay, store.Filter{IDs: ids})
		dead += n
		return err
	})
	return dead, err
}

// ask writes the requests.
func (r *Repair) ask(ctx context.Context, st *store.Store, auditor *verify.Auditor) (requests []int64, err error) {
	err = inPortions(auditor, func(ids []string) error {
		id, err := st.AddRequest(ctx, store.RequestRepublish, store.Filter{IDs: ids, Until: &r.until}, r.Who, r.Note)
		requests = append(requests, id)
		return err
	})
	return requests, err
}

// inPortions gives the lost events' ids in the order of the table.
func inPortions(auditor *verify.Auditor, do func(ids []string) error) error {
	var ids []string
	err := auditor.Lost(func(id string) error {
		if ids = append(ids, id); len(ids) < repairPortion {
			return nil
		}
		portion := ids
		ids = nil
		return do(portion)
	})
	if err == nil && len(ids) > 0 {
		err = do(ids)
	}
	return err
}
