package simulator

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// audit is how far the reconciler of the slot has come.
func (t *tables) audit(db *database) *store.AuditState {
	a := db.audits[t.stateKey()]
	if a == nil {
		a = &store.AuditState{Horizon: clock(), Ranged: true, Blocks: 1}
		db.audits[t.stateKey()] = a
	}
	return a
}

// AuditState says how far it has come.
func (t *tables) AuditState(ctx context.Context) (a store.AuditState, err error) {
	err = t.do(ctx, "audit state", func(db *database) error {
		a = *t.audit(db)
		return nil
	})
	return a, err
}

// SaveHorizon notes where the next round begins.
func (t *tables) SaveHorizon(ctx context.Context, horizon time.Time) error {
	return t.fenced(ctx, "save horizon", func(db *database) error {
		a := t.audit(db)
		was := a.Horizon
		a.Horizon = horizon
		t.relaxed(func() { a.Horizon = was })
		return nil
	})
}

// SaveSweep notes when the whole table was looked at.
func (t *tables) SaveSweep(ctx context.Context, at time.Time) error {
	return t.fenced(ctx, "save sweep", func(db *database) error {
		a := t.audit(db)
		was := a.SweptAt
		a.SweptAt = at
		t.relaxed(func() { a.SweptAt = was })
		return nil
	})
}

// Running lists the transactions that are not over.
func (t *tables) Running(ctx context.Context) (r store.Running, err error) {
	err = t.do(ctx, "running", func(*database) error {
		r.Now = clock()
		for tx := range t.w.server.running {
			r.Sessions = append(r.Sessions, strconv.Itoa(int(tx.xid)))
		}
		return nil
	})
	return r, err
}

// UnrecordedSince lists rows that were made since and are not recorded.
func (t *tables) UnrecordedSince(ctx context.Context, since time.Time, limit int) ([][]byte, error) {
	return t.unrecordedRows(ctx, "unrecorded since", limit, func(r *row) bool { return !r.made.Before(since) })
}

// UnrecordedIn lists the same of a part of the table, which here is in its first block.
func (t *tables) UnrecordedIn(ctx context.Context, from, _ int64, limit int) ([][]byte, error) {
	return t.unrecordedRows(ctx, "unrecorded in", limit, func(*row) bool { return from == 0 })
}

func (t *tables) unrecordedRows(ctx context.Context, name string, limit int,
	fits func(*row) bool) (ids [][]byte, err error) {
	err = t.do(ctx, name, func(db *database) error {
		rows, err := t.unrecorded(db)
		for _, r := range rows {
			if fits(r) && len(ids) < limit {
				ids = append(ids, []byte(r.id))
			}
		}
		return err
	})
	return ids, err
}

// LateRows are those that are there and not recorded, in table order.
func (t *tables) LateRows(ctx context.Context, ids [][]byte, limit int) (rows []store.CatchUpRow, err error) {
	err = t.reads(ctx, "late rows", func(db *database) error {
		left, err := t.unrecorded(db)
		for _, r := range left {
			if slices.ContainsFunc(ids, func(id []byte) bool { return string(id) == r.id }) && len(rows) < limit {
				rows = append(rows, store.CatchUpRow{Row: uint64(len(rows) + 1), Event: t.event(r)})
			}
		}
		return err
	})
	return rows, err
}

// CountDead counts the dead letters that no one has replayed or discarded.
func (t *tables) CountDead(ctx context.Context) (n int64, err error) {
	err = t.do(ctx, "count dead", func(db *database) error {
		for at := range db.dead {
			if t.covers(at.source) && !db.dead[at].replayed && !db.dead[at].discarded {
				n++
			}
		}
		return nil
	})
	return n, err
}

// OldestParked is for a metric that no one looks at here.
func (t *tables) OldestParked(context.Context) (time.Time, error) { return time.Time{}, nil }

func sortBySeq(rows []*row) {
	slices.SortFunc(rows, func(a, b *row) int { return cmp.Compare(a.seq, b.seq) })
}

// enterJournal journals events that are not; of two records of an event in one call the last counts. Each source has a
// batch of its own.
func (t *tables) enterJournal(db *database, published []store.Published) {
	batches := map[int32]*journalBatch{}
	entered := map[recorded]bool{}
	for _, p := range published {
		p.ID = bytes.Clone(p.ID)
		at := t.at(p.Source, p.ID)
		if _, known := db.journal[at]; !known || entered[at] {
			db.journal[at], db.journaled[at], entered[at] = p, clock(), true
			t.w.judgeJournaled(t, p)
		}
		source := t.of(p.Source)
		if batches[source] == nil {
			batches[source] = &journalBatch{source: source, lsn: t.w.server.wal.end, at: clock(), xid: t.w.server.lastXID}
			db.batches = append(db.batches, batches[source])
		}
		batches[source].ids = append(batches[source].ids, string(p.ID))
	}
}
