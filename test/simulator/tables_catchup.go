package simulator

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/store"
)

// unrecorded lists the rows that can be seen and are not terminal, in table order.
func (t *tables) unrecorded(db *database) (rows []*row) {
	for _, r := range t.w.server.table.rows {
		if r.visible && !r.deleted && !r.marked && !db.terminal(t.at([]byte(r.id))) {
			rows = append(rows, r)
		}
	}
	sortBySeq(rows)
	return rows
}

// CountUnrecorded counts them.
func (t *tables) CountUnrecorded(ctx context.Context, limit int64) (n int64, err error) {
	err = t.do(ctx, "count unrecorded", func(db *database) error {
		t.state(db)
		n = int64(len(t.unrecorded(db)))
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
		if st := db.states[t.slot]; st != nil {
			t.tableFirst(st, late)
		}
		t.durable()
		return nil
	})
}

func (t *tables) tableFirst(st *store.State, late bool) {
	st.Phase, st.CatchUpReady, st.Dirty, st.CatchUpLate = store.CatchUp, false, true, late || st.CatchUpLate
	t.w.note("p%d: the table comes first, late %v", t.p.number, st.CatchUpLate)
}

// BeginCatchUpSince is BeginCatchUp unless somebody has taken over since.
func (t *tables) BeginCatchUpSince(ctx context.Context, epoch int64, late bool) (begun bool, err error) {
	err = t.do(ctx, "begin catch-up since", func(db *database) error {
		st := db.states[t.slot]
		if begun = st != nil && db.epochs[t.slot] == epoch; begun {
			t.tableFirst(st, late)
		}
		t.durable()
		return nil
	})
	return begun, err
}

// BeginCatchUpOfLost is BeginCatchUp if there is no slot that can be used.
func (t *tables) BeginCatchUpOfLost(ctx context.Context) (begun bool, err error) {
	err = t.do(ctx, "begin catch-up of lost", func(db *database) error {
		st, slot := db.states[t.slot], t.w.server.slots[t.slot]
		if begun = st != nil && (slot == nil || slot.lost); begun {
			st.Phase, st.CatchUpReady, st.Dirty = store.CatchUp, false, true
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
		rows := t.unrecorded(db)
		db.catchUp[t.source] = rows
		db.states[t.slot].CatchUpReady, db.states[t.slot].Era = true, t.epoch
		t.audit(db).SweptAt = time.Now()
		n = int64(len(rows))
		t.durable()
		t.w.note("p%d lists %d rows to catch up with", t.p.number, n)
		if t.w.mutant != oldPlaces {
			t.renumber(db)
		}
		return nil
	})
	return n, err
}

// renumber moves parked events, and dead letters that may be replayed, into the era of the catch-up: to the place of
// their row, or of the one that was in front of them in their lane if that is further back, or if their row is gone.
func (t *tables) renumber(db *database) {
	lanes := map[string][]*outbox.Event{}
	for at, p := range db.parked {
		if at.source == t.key() {
			name := p.topic + "/" + string(p.key)
			lanes[name] = append(lanes[name], &p.event)
		}
	}
	for at, d := range db.dead {
		if at.source == t.key() && db.open(at, d) {
			name := d.topic + "/" + string(d.key)
			lanes[name] = append(lanes[name], &d.event)
		}
	}
	for _, lane := range lanes {
		slices.SortFunc(lane, func(a, b *outbox.Event) int { return a.Position.Compare(b.Position) })
		behind := uint64(0)
		for i, e := range lane {
			if r := t.w.server.table.byID[string(e.ID)]; r != nil && r.visible && !r.deleted {
				behind = max(behind, uint64(r.seq))
			}
			e.Position = outbox.Position{Epoch: t.epoch, Table: true, Order: behind, Index: uint32(i + 1)}
		}
	}
}

// CatchUpRows are the next rows of the list.
func (t *tables) CatchUpRows(ctx context.Context, after uint64, limit int) (rows []store.CatchUpRow, err error) {
	err = t.do(ctx, "catch-up rows", func(db *database) error {
		limit = min(limit, 5) // small pages, so that there is more than one
		for _, r := range db.catchUp[t.source] {
			if uint64(r.seq) <= after || r.deleted || db.terminal(t.at([]byte(r.id))) {
				continue
			}
			if len(rows) == limit {
				break
			}
			t.w.counts.CatchUpRows++
			r.late = r.late || db.states[t.slot].CatchUpLate
			rows = append(rows, store.CatchUpRow{Row: uint64(r.seq), Event: r.event()})
		}
		return nil
	})
	return rows, err
}

// event is the row as the table gives it.
func (r *row) event() outbox.Event {
	e := outbox.Event{
		ID: []byte(r.id), AggregateType: []byte(r.kind), EventType: []byte("made"), Payload: []byte(r.payload),
		CreatedAt: []byte(createdAt),
	}
	if r.key != "" {
		e.AggregateID = []byte(r.key)
	}
	if r.headers != "" {
		e.Headers = []byte(r.headers)
	}
	return e
}

// FinishCatchUp ends the phase.
func (t *tables) FinishCatchUp(ctx context.Context) error {
	return t.fenced(ctx, "finish catch-up", func(db *database) error {
		st := db.states[t.slot]
		if !st.CatchUpReady {
			return errors.New("its list of rows is void")
		}
		delete(db.catchUp, t.source)
		st.Phase, st.CatchUpReady, st.CatchUpLate = store.Stream, false, false
		t.durable()
		return nil
	})
}

// MirrorStep marks rows.
func (t *tables) MirrorStep(ctx context.Context, _ int) (n int, more bool, err error) {
	if !t.mark {
		return 0, false, nil
	}
	return t.mirror(ctx, "mirror", func(r *row) *bool {
		return &r.marked
	}, func(b *journalBatch) *bool { return &b.mirrored },
		func(*journalBatch) bool { return true })
}

// DeleteStep deletes rows that were published so long ago and, where rows are marked, are.
func (t *tables) DeleteStep(ctx context.Context, retention time.Duration, _ int) (n int, more bool, err error) {
	if !t.delete && retention <= 0 {
		return 0, false, nil
	}
	n, more, err = t.mirror(ctx, "delete", func(r *row) *bool {
		return &r.deleted
	}, func(b *journalBatch) *bool { return &b.deleted },
		func(b *journalBatch) bool {
			return b.lsn <= t.w.server.db.states[t.slot].Confirmed && time.Since(b.at) >= retention && (b.mirrored || !t.mark)
		})
	t.w.mu.Lock()
	t.w.counts.Deleted += n
	t.w.mu.Unlock()
	return n, more && n > 0, err
}

// mirror changes the rows of a few batches that are fit for it, and takes a note of those that were: both can be
// forgotten by a crash.
func (t *tables) mirror(ctx context.Context, name string, of func(*row) *bool, done func(*journalBatch) *bool,
	fit func(*journalBatch) bool) (n int, more bool, err error) {
	set := func(what *bool) {
		*what = true
		t.relaxed(func() { *what = false })
	}
	err = t.do(ctx, name, func(db *database) error {
		taken := 0
		for _, b := range slices.Clone(db.batches) {
			if b.source != t.source || *done(b) {
				continue
			}
			if taken == 3 || !fit(b) {
				more = true
				continue
			}
			taken++
			again := &journalBatch{source: b.source, lsn: b.lsn, at: b.at}
			for _, id := range b.ids {
				r := t.w.server.table.byID[id]
				switch {
				case r == nil || *of(r):
				case !r.visible:
					again.ids = append(again.ids, id)
				default:
					n++
					set(of(r))
				}
			}
			set(done(b))
			if len(again.ids) > 0 {
				db.batches = append(db.batches, again)
				more = true
			}
		}
		return nil
	})
	return n, more, err
}

// ShowDead and ShowRetried are of outbox.dead_set and retry_set, which are not configured here.
func (t *tables) ShowDead(context.Context, int, int) (due, left int, err error) { return 0, 0, nil }

// ShowRetried has nothing to show.
func (t *tables) ShowRetried(context.Context, int, int) (due, left int, err error) { return 0, 0, nil }

// MirrorLag counts what is not marked or deleted yet.
func (t *tables) MirrorLag(ctx context.Context) (n int64, age time.Duration, err error) {
	if !t.mark && !t.delete {
		return 0, 0, nil
	}
	err = t.do(ctx, "mirror lag", func(db *database) error {
		for _, b := range db.batches {
			if b.source == t.source && (t.mark && !b.mirrored || t.delete && !b.deleted) {
				n += int64(len(b.ids))
			}
		}
		return nil
	})
	return n, 0, err
}

// PruneRequests has nothing to prune: nobody runs for so long.
func (t *tables) PruneRequests(ctx context.Context, _ time.Duration, _ int) (int, bool, error) {
	return 0, false, ctx.Err()
}

// PruneDead keeps everything, as Prune does.
func (t *tables) PruneDead(ctx context.Context, _ time.Duration, _ int) (int, bool, error) {
	return 0, false, t.do(ctx, "prune dead", func(*database) error { return nil })
}

// Prune keeps everything: runs are shorter than any retention.
func (t *tables) Prune(ctx context.Context, _ time.Duration, _ int) (int, bool, error) {
	return 0, false, t.do(ctx, "prune", func(*database) error { return nil })
}
