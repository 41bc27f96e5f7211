package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// DryTables is the part of the store that a dry run uses.
type DryTables interface {
	State(ctx context.Context) (*store.State, error)
	Slot(ctx context.Context) (store.SlotStatus, error)
	AuditState(ctx context.Context) (store.AuditState, error)
	UnrecordedIn(ctx context.Context, from, to int64, limit int) ([][]byte, error)
	EmitToken(ctx context.Context, prefix, content string) (outbox.LSN, error)
	Spooled(ctx context.Context) (store.SpoolState, error)
}

// DryReport is the result of a dry run.
type DryReport struct {
	Unrecorded int  `json:"unrecorded"`  // rows that were not recorded when they were seen
	Missed     int  `json:"missed"`      // of those, rows that the stream has not delivered, though it has come past them
	Streaming  bool `json:"streaming"`   // a relay holds the slot
	CatchingUp bool `json:"catching_up"` // and publishes rows from the table before it streams
	Proved     bool `json:"proved"`      // Missed is proved; else it is not known, and 0
	Spooled    int  `json:"spooled"`     // events in cdc_relay_spool, which are still to be sent; 0 when Missed is proved
}

const (
	auditLook = 200 * time.Millisecond // the pause between two looks
	auditRest = 9                      // times as long as the last look, if that is more: a large spool takes a second
	auditPage = 10_000                 // ids read at once
)

// DryRun looks at the whole table, as a reconciler does, and publishes nothing. While a relay streams it proves what
// was missed: it waits, at most for the patience given, until the slot has confirmed the end of WAL after the look, and
// looks again. What is spooled is confirmed and not recorded, so it waits until that is sent, too. It writes nothing
// but one message into the WAL, so that there is something to be confirmed. Without a relay it can only count: what is
// not recorded may be still to come.
func DryRun(ctx context.Context, tables DryTables, patience time.Duration) (DryReport, error) {
	var r DryReport
	state, err := tables.State(ctx)
	if err != nil {
		return r, err
	}
	if state == nil {
		return r, fmt.Errorf("no relay has used this slot yet: nothing to reconcile; start with cdc-relay run")
	}
	slot, err := tables.Slot(ctx)
	if err != nil {
		return r, err
	}
	r.Streaming, r.CatchingUp = slot.Active, slot.Active && state.Phase != store.Stream
	deadline := time.Now().Add(patience)
	if r.Streaming && !r.CatchingUp {
		r.Spooled, err = awaitSent(ctx, tables, deadline)
	} else {
		var spooled store.SpoolState
		spooled, err = tables.Spooled(ctx)
		r.Spooled = int(spooled.Events)
	}
	if err != nil {
		return r, err
	}
	if !r.Streaming || r.CatchingUp || r.Spooled > 0 { // there may be more than memory holds
		err = unrecorded(ctx, tables, func(ids [][]byte) { r.Unrecorded += len(ids) })
		if err == nil && r.Streaming && !r.CatchingUp && r.Unrecorded == 0 {
			r.Proved, r.Spooled = true, 0
		}
		return r, err
	}
	return r, r.lookTwice(ctx, tables, deadline)
}

// lookTwice counts the rows that are not recorded, and of these the ones that are not either once what was committed
// before is.
func (r *DryReport) lookTwice(ctx context.Context, tables DryTables, deadline time.Time) error {
	began := time.Now()
	first, err := unrecordedIDs(ctx, tables)
	if err != nil {
		return err
	}
	if r.Unrecorded = len(first); r.Unrecorded == 0 {
		r.Proved = true
		return nil
	}
	deadline = deadline.Add(time.Since(began)) // a look is not a wait
	if r.Proved, err = awaitConfirmed(ctx, tables, deadline); err != nil || !r.Proved {
		return err
	}
	if r.Spooled, err = awaitSent(ctx, tables, deadline); err != nil {
		return err
	}
	if r.Proved = r.Spooled == 0; !r.Proved {
		return nil
	}
	second, err := unrecordedIDs(ctx, tables)
	for id := range second {
		if first[id] {
			r.Missed++
		}
	}
	return err
}

func unrecordedIDs(ctx context.Context, tables DryTables) (map[string]bool, error) {
	found := map[string]bool{}
	err := unrecorded(ctx, tables, func(ids [][]byte) {
		for _, id := range ids {
			found[string(id)] = true
		}
	})
	return found, err
}

// unrecorded hands out the ids of all rows that are not recorded.
func unrecorded(ctx context.Context, tables DryTables, take func(ids [][]byte)) error {
	state, err := tables.AuditState(ctx)
	if err != nil {
		return err
	}
	for from, step := int64(0), int64(sweepBlocks); from < state.Blocks; {
		ids, err := tables.UnrecordedIn(ctx, from, from+step, auditPage)
		if err != nil {
			return err
		}
		if len(ids) == auditPage && step > 1 { // there may be more in these blocks
			step /= 2
			continue
		}
		take(ids)
		from += step
	}
	return nil
}

// awaitConfirmed waits until everything that is committed now is recorded, if the stream delivers it at all.
func awaitConfirmed(ctx context.Context, tables DryTables, deadline time.Time) (bool, error) {
	if _, err := tables.EmitToken(ctx, store.TokenPrefix, "audit"); err != nil {
		return false, err
	}
	slot, err := tables.Slot(ctx)
	if err != nil {
		return false, err
	}
	end := slot.WALEnd
	for slot.Confirmed < end {
		if time.Now().After(deadline) {
			return false, nil
		}
		if err := rest(ctx, auditLook); err != nil {
			return false, err
		}
		if slot, err = tables.Slot(ctx); err != nil {
			return false, err
		}
	}
	return true, nil
}

// awaitSent waits until what is spooled now is sent, and tells how many events are not. Rows are numbered in order.
func awaitSent(ctx context.Context, tables DryTables, deadline time.Time) (left int, err error) {
	began := time.Now()
	now, err := tables.Spooled(ctx)
	for last := now.Last; err == nil && !now.Empty() && now.First <= last; {
		if time.Now().After(deadline) {
			return max(1, int(now.Events)), nil
		}
		if err := rest(ctx, max(auditLook, auditRest*time.Since(began))); err != nil {
			return 0, err
		}
		began = time.Now()
		now, err = tables.Spooled(ctx)
	}
	return 0, err
}

// rest is the pause between two looks.
func rest(ctx context.Context, pause time.Duration) error {
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
