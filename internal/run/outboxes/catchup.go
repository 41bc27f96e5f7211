package outboxes

import (
	"context"
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// This file catches up with what the tables held before they were streamed.

// CountUnrecorded counts the rows of all tables that are to be published, up to the limit; 0: all.
func (t *Tables) CountUnrecorded(ctx context.Context, limit int64) (n int64, err error) {
	for _, o := range t.present() {
		some, err := o.CountUnrecorded(ctx, limit)
		if err := t.spare(ctx, o, err); err != nil {
			return 0, err
		}
		if n += some; limit > 0 && n >= limit {
			return limit, nil
		}
	}
	return n, nil
}

// SetBaseline makes the rows that are in the tables now count as published.
func (t *Tables) SetBaseline(ctx context.Context) (rows int64, err error) {
	for _, o := range t.present() {
		n, err := o.SetBaseline(ctx)
		if err != nil {
			return 0, err
		}
		rows += n
	}
	return rows, t.slot.NoteBaseline(ctx)
}

// behind are the outboxes that are to be caught up with.
func (t *Tables) behind(ctx context.Context) ([]*Outbox, error) {
	err := t.refresh(ctx)
	return t.wereBehind(), err
}

// wereBehind are the outboxes that were to be caught up with when their states were read last.
func (t *Tables) wereBehind() (list []*Outbox) {
	for _, o := range t.Known() {
		if o.Recorded().Phase == store.CatchUp && !o.gone.Load() && !o.wrong() {
			list = append(list, o)
		}
	}
	return list
}

// SnapshotCatchUp lists, for each outbox that is to be caught up with and has no list, the rows to be published.
func (t *Tables) SnapshotCatchUp(ctx context.Context) (rows int64, err error) {
	if _, rows, err = t.listed(ctx); err != nil {
		return 0, err
	}
	return rows, t.slot.ListsReady(ctx)
}

// listed are the outboxes that are to be caught up with, each with its list.
func (t *Tables) listed(ctx context.Context) (list []*Outbox, rows int64, err error) {
	list, err = t.behind(ctx)
	made := false
	for _, o := range list {
		if o.Recorded().CatchUpReady {
			continue
		}
		n, err := o.SnapshotCatchUp(ctx)
		if err := t.spare(ctx, o, err); err != nil {
			return nil, 0, err
		}
		rows, made = rows+n, true
	}
	if made {
		err = t.refresh(ctx)
	}
	return list, rows, err
}

// ReusedAside lists rows that a catch-up is about to leave out because their ids are recorded.
func (t *Tables) ReusedAside(ctx context.Context, limit int) (all []store.Aside, err error) {
	for _, o := range t.present() {
		some, err := o.ReusedAside(ctx, limit-len(all))
		if err := t.spare(ctx, o, err); err != nil {
			return nil, err
		}
		if all = append(all, some...); len(all) >= limit {
			break
		}
	}
	return all, nil
}

// CatchUpRows gives the next rows of the lists, one table after the other: those behind the row given, of the table
// that the last page was of, and from the beginning after row 0. One that was registered while the lists were made, by
// another relay perhaps, gets its own then. The states are read then, too, and not with each page: until FinishCatchUp,
// and while this relay has the slot, which each page makes sure of, no table ends its catch-up. A table may be dropped,
// or left out, at any time.
func (t *Tables) CatchUpRows(ctx context.Context, afterRow uint64, limit int) (_ []store.CatchUpRow, err error) {
	var list []*Outbox
	if afterRow == 0 {
		t.reading, t.done = 0, map[int32]bool{}
		list, _, err = t.listed(ctx)
	} else {
		list = t.wereBehind()
	}
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(list, func(o *Outbox) bool { return o.Source == t.reading }); i > 0 {
		list[0], list[i] = list[i], list[0]
	}
	for _, o := range list {
		if t.done[o.Source] || o.absent() {
			continue
		}
		if o.Source != t.reading {
			t.reading, afterRow = o.Source, 0
		}
		rows, err := o.CatchUpRows(ctx, afterRow, limit)
		if err != nil {
			if err := t.spare(ctx, o, err); err != nil {
				return nil, err
			}
			continue
		}
		if len(rows) > 0 {
			return rows, nil
		}
		t.done[o.Source] = true
	}
	return nil, nil
}

// FinishCatchUp ends the phase for each outbox whose list was read to its end, and for the slot. One that was left out
// keeps the phase: see Resume.
func (t *Tables) FinishCatchUp(ctx context.Context) error {
	list, err := t.behind(ctx)
	if err != nil {
		return err
	}
	for _, o := range list {
		if !t.done[o.Source] {
			return fmt.Errorf("outbox %s: its list of rows to catch up was not read; trying again", o.name())
		}
	}
	for _, o := range list {
		if err := o.FinishCatchUp(ctx); err != nil {
			return err
		}
	}
	return t.slot.FinishCatchUp(ctx)
}
