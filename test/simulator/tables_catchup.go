package simulator

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// unrecorded lists the rows that can be seen and are not terminal, in table order.
func (t *tables) unrecorded(db *database) (rows []*row, err error) {
	own, err := t.own()
	if err != nil {
		return nil, err
	}
	for _, r := range own.rows {
		if r.visible && !r.deleted && !r.marked && !db.terminal(t.at(0, []byte(r.id))) {
			rows = append(rows, r)
		}
	}
	sortBySeq(rows)
	return rows, nil
}

// CountUnrecorded counts them.
func (t *tables) CountUnrecorded(ctx context.Context, limit int64) (n int64, err error) {
	err = t.do(ctx, "count unrecorded", func(db *database) error {
		t.state(db)
		rows, err := t.unrecorded(db)
		if n = int64(len(rows)); err != nil {
			return err
		}
		if limit > 0 {
			n = min(n, limit)
		}
		return nil
	})
	return n, err
}

// BeginCatchUp puts the slot back into phase catch_up.
func (t *tables) BeginCatchUp(ctx context.Context, late bool) error {
	return t.do(ctx, "begin catch-up", func(db *database) error {
		for _, st := range db.statesOf(t.slot) {
			t.tableFirst(st, late)
		}
		t.durable()
		return nil
	})
}

func (t *tables) tableFirst(st *store.State, late bool) {
	st.Baseline = st.Baseline || st.Phase == store.Stream
	st.Phase, st.CatchUpReady, st.Dirty, st.CatchUpLate = store.CatchUp, false, true, late || st.CatchUpLate
	t.w.note("p%d: the table comes first, late %v", t.p.number, st.CatchUpLate)
}

// BeginCatchUpSince is BeginCatchUp unless someone has taken over since.
func (t *tables) BeginCatchUpSince(ctx context.Context, epoch int64, late bool) (begun bool, err error) {
	err = t.do(ctx, "begin catch-up since", func(db *database) error {
		all := db.statesOf(t.slot)
		if begun = len(all) > 0 && db.epochs[t.slot] == epoch; begun {
			for _, st := range all {
				t.tableFirst(st, late)
			}
		}
		t.durable()
		return nil
	})
	return begun, err
}

// BeginCatchUpOfLost is BeginCatchUp if there is no slot that can be used.
func (t *tables) BeginCatchUpOfLost(ctx context.Context) (begun bool, err error) {
	err = t.do(ctx, "begin catch-up of lost", func(db *database) error {
		all, slot := db.statesOf(t.slot), t.w.server.slots[t.slot]
		if begun = len(all) > 0 && (slot == nil || slot.lost); begun {
			for _, st := range all {
				st.Baseline = st.Baseline || st.Phase == store.Stream
				st.Phase, st.CatchUpReady, st.Dirty = store.CatchUp, false, true
			}
			t.w.note("p%d: the table comes first, the slot is lost", t.p.number)
		}
		t.durable()
		return nil
	})
	return begun, err
}

// Barrier waits until the transactions that run are over.
func (t *tables) Barrier(ctx context.Context, timeout time.Duration) (blockers []store.Blocker, err error) {
	var upTo uint32
	if err := t.do(ctx, "barrier", func(*database) error {
		upTo = t.w.server.lastXID
		return nil
	}); err != nil {
		return nil, err
	}
	end := time.NewTimer(timeout)
	defer end.Stop()
	for {
		t.w.mu.Lock()
		waits, changed := t.w.server.oldestRunning(upTo), t.w.server.changed
		t.w.mu.Unlock()
		if !waits {
			return nil, t.do(ctx, "barrier passed", func(*database) error { return nil })
		}
		select {
		case <-changed:
		case <-end.C:
			return []store.Blocker{{PID: 1}}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// SnapshotCatchUp writes the list of the rows to catch up with, and gives parked events places in it.
func (t *tables) SnapshotCatchUp(ctx context.Context) (n int64, err error) {
	err = t.fenced(ctx, "snapshot", func(db *database) error {
		own, err := t.own()
		if err != nil {
			return err
		}
		rows, _ := t.unrecorded(db)
		t.list(db, own)
		t.noteListed(db)
		n = int64(len(rows))
		t.durable()
		t.w.note("p%d lists %d rows to catch up with", t.p.number, n)
		return nil
	})
	return n, err
}

// ReusedAside is empty: no id is used again.
func (t *tables) ReusedAside(context.Context, int) ([]store.Aside, error) { return nil, nil }

// place is where something belongs in the list of a catch-up: a row at its number among those that have no outcome, and
// what is parked, or may be replayed, as the nth of its lane behind one.
type place struct {
	behind, nth int
	row         *row          // nil of what has a place already
	event       *outbox.Event // nil of a row
}

// list numbers the rows of a catch-up, together with parked events and dead letters that may be replayed, which come
// into its era: behind their row, or behind what was in front of them in their lane if that is further back, or if
// their row is gone. Events without a key are one lane here.
func (t *tables) list(db *database, own *table) {
	lanes := map[string][]*outbox.Event{}
	aside := map[string]bool{}
	for at, p := range db.parked {
		if t.covers(at.source) {
			name := p.topic + "/" + string(p.key)
			lanes[name], aside[at.id] = append(lanes[name], &p.event), true
		}
	}
	for at, d := range db.dead {
		if t.covers(at.source) && db.open(at, d) {
			name := d.topic + "/" + string(d.key)
			lanes[name], aside[at.id] = append(lanes[name], &d.event), true
		}
	}
	var places []place
	number := map[string]int{}
	for _, r := range t.listable(db, own, aside) {
		number[r.id] = len(number) + 1
		if !aside[r.id] {
			places = append(places, place{behind: number[r.id], row: r})
		}
	}
	if t.w.mutant == oldPlaces {
		lanes = nil
	}
	for _, name := range sortedKeys(lanes) {
		lane := lanes[name]
		slices.SortFunc(lane, func(a, b *outbox.Event) int {
			return cmp.Or(a.Position.Compare(b.Position), bytes.Compare(a.ID, b.ID))
		})
		behind := 0
		for i, e := range lane {
			behind = max(behind, number[string(e.ID)])
			places = append(places, place{behind: behind, nth: i + 1, event: e})
		}
	}
	slices.SortStableFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.behind, b.behind), cmp.Compare(a.nth, b.nth))
	})
	if t.w.real != nil {
		t.w.real.orders(t, places)
	}
	db.catchUp[t.source] = nil
	for i, p := range places {
		if p.row != nil {
			db.catchUp[t.source] = append(db.catchUp[t.source], listed{uint64(i + 1), p.row})
		} else {
			p.event.Position = outbox.Position{Epoch: t.epoch, Table: true, Order: uint64(i + 1)}
			if d := db.dead[t.at(0, p.event.ID)]; d != nil { // of a parked one that is replayed
				d.event.Position = p.event.Position
			}
		}
	}
}

// listable are the rows that are to come, and those of what has a place already, in table order.
func (t *tables) listable(db *database, own *table, aside map[string]bool) (rows []*row) {
	for _, r := range own.rows {
		at := t.at(0, []byte(r.id))
		_, journaled := db.journal[at]
		if r.visible && !r.deleted && !r.marked && !journaled && (aside[r.id] || db.dead[at] == nil) {
			rows = append(rows, r)
		}
	}
	sortBySeq(rows)
	return rows
}

// pageMost keeps pages small, so that there is more than one.
const pageMost = 5

// CatchUpRows are the next rows of the list.
func (t *tables) CatchUpRows(ctx context.Context, after uint64, limit int) (rows []store.CatchUpRow, err error) {
	err = t.reads(ctx, "catch-up rows", func(db *database) error {
		if _, err := t.own(); err != nil {
			return err
		}
		limit = min(limit, pageMost)
		for _, l := range db.catchUp[t.source] {
			r := l.row
			if l.number <= after || r.deleted || db.terminal(t.at(0, []byte(r.id))) {
				continue
			}
			if len(rows) == limit {
				break
			}
			t.w.counts.CatchUpRows++
			r.late = r.late || db.states[t.stateKey()].CatchUpLate || db.states[t.slot].CatchUpLate
			rows = append(rows, store.CatchUpRow{Row: l.number, Event: t.event(r)})
		}
		return nil
	})
	return rows, err
}

// known notes which of the ids are recorded.
func (t *tables) known(ctx context.Context, events []store.Sighting, found []bool) error {
	return t.reads(ctx, "look up", func(db *database) error {
		for i, e := range events {
			at := t.at(e.Source, e.ID)
			found[i] = db.terminal(at)
			switch {
			case t.w.mutant == deadForgotten && db.dead[at] != nil:
				found[i] = false
			case t.w.mutant == notFoundIsDeleted && !found[i]:
				r := t.w.server.rowIn(t.of(e.Source), e.ID)
				found[i] = r == nil || r.deleted || !r.visible
			}
		}
		return nil
	})
}

// FinishCatchUp ends the phase.
func (t *tables) FinishCatchUp(ctx context.Context) error {
	return t.fenced(ctx, "finish catch-up", func(db *database) error {
		st := db.states[t.stateKey()]
		if !st.CatchUpReady {
			return errors.New("its list of rows is void")
		}
		delete(db.catchUp, t.source)
		st.Phase, st.CatchUpReady, st.CatchUpLate = store.Stream, false, false
		t.durable()
		return nil
	})
}
