package simulator

import (
	"context"
	"slices"
	"time"
)

// stepMost keeps the steps of the mirror small, so that there is more than one: ids of all batches but the last.
const stepMost = 6

// MirrorStep marks rows.
func (t *tables) MirrorStep(ctx context.Context, limit int) (n int, more bool, err error) {
	if !t.mark {
		return 0, false, nil
	}
	err = t.do(ctx, "mirror", func(db *database) error {
		own, err := t.own()
		if err != nil {
			return err
		}
		batches, _ := t.nextBatches(db, limit, func(b *journalBatch) bool { return !b.mirrored })
		for _, b := range batches {
			for _, id := range b.ids {
				if r := own.byID[id]; r != nil && r.visible && !r.deleted && !r.marked {
					t.w.judgeMarked(t, r)
					t.set(&r.marked)
					n++
				}
			}
			t.set(&b.mirrored)
		}
		more = slices.ContainsFunc(db.batches, func(b *journalBatch) bool { return b.source == t.source && !b.mirrored })
		return nil
	})
	return n, more, err
}

// DeleteStep deletes rows that were published so long ago and, where rows are marked, are.
func (t *tables) DeleteStep(ctx context.Context, retention time.Duration, limit int) (n int, more bool, err error) {
	if !t.delete && retention <= 0 {
		return 0, false, nil
	}
	err = t.do(ctx, "delete", func(db *database) error {
		own, err := t.own()
		if err != nil {
			return err
		}
		until := clock().Add(-retention.Truncate(time.Microsecond))
		batches, ids := t.nextBatches(db, limit, func(b *journalBatch) bool {
			return !b.deleted && (b.mirrored || !t.mark) && !b.at.After(until) && b.lsn <= db.states[t.slot].Confirmed
		})
		for _, b := range batches {
			for _, id := range b.ids {
				if r := own.byID[id]; r != nil && r.visible && !r.deleted && (r.marked || !t.mark) {
					t.set(&r.deleted)
					n++
				}
			}
			t.set(&b.mirrored)
			t.set(&b.deleted)
		}
		t.w.counts.Deleted += n
		more = n > 0 && ids >= min(limit, stepMost)
		return nil
	})
	return n, more, err
}

// nextBatches are the first batches that fit, and how many ids they have. A batch waits for the transactions that were
// running when it was written: rows of these can be streamed and still be invisible.
func (t *tables) nextBatches(db *database, limit int, fit func(*journalBatch) bool) (next []*journalBatch, ids int) {
	for _, b := range db.batches {
		if ids < min(limit, stepMost) && b.source == t.source && fit(b) && !t.w.server.oldestRunning(b.xid) {
			next = append(next, b)
			ids += len(b.ids)
		}
	}
	return next, ids
}

// set notes what a crash can forget.
func (t *tables) set(what *bool) {
	if !*what {
		*what = true
		t.relaxed(func() { *what = false })
	}
}

// ShowDead and ShowRetried are of outbox.dead_set and retry_set, which are not configured here.
func (t *tables) ShowDead(context.Context, int, int) (due, left int, err error) { return 0, 0, nil }

// ShowRetried has nothing to show.
func (t *tables) ShowRetried(context.Context, int, int) (due, left int, err error) { return 0, 0, nil }

// MirrorLag returns how many rows are not yet marked or deleted, and for how long.
func (t *tables) MirrorLag(ctx context.Context) (n int64, age time.Duration, err error) {
	if !t.mark && !t.delete {
		return 0, 0, nil
	}
	err = t.do(ctx, "mirror lag", func(db *database) error {
		keep := time.Duration(0)
		if t.delete {
			keep = t.retention
		}
		for _, b := range db.batches {
			if b.source != t.source && !slices.Contains(t.members, b.source) || b.mirrored {
				continue
			}
			if keep > 0 && time.Since(b.at).Truncate(time.Microsecond) < keep {
				break
			}
			if n == 0 {
				age = max(clock().Sub(b.at)-keep, 0)
			}
			n += int64(len(b.ids))
		}
		return nil
	})
	return n, age, err
}

// PruneRequests has nothing to prune: no one runs for so long.
func (t *tables) PruneRequests(ctx context.Context, _ time.Duration, _ int) (int, bool, error) {
	return 0, false, ctx.Err()
}

// PruneDead keeps everything, as Prune does.
func (t *tables) PruneDead(ctx context.Context, _ time.Duration, _ int) (int, bool, error) {
	return 0, false, t.do(ctx, "prune dead", func(*database) error { return nil })
}

// PruneDropped keeps everything, as Prune does.
func (t *tables) PruneDropped(context.Context, time.Duration, int) (int, bool, error) {
	return 0, false, nil
}

// NothingToMark notes that nothing is to be marked of a table that is gone.
func (t *tables) NothingToMark(ctx context.Context) (n int, err error) {
	err = t.do(ctx, "nothing to mark", func(db *database) error {
		for _, b := range db.batches {
			if b.source == t.source && !b.mirrored {
				t.set(&b.mirrored)
				t.set(&b.deleted)
				n++
			}
		}
		return nil
	})
	return n, err
}

// Prune keeps everything: runs are shorter than any retention.
func (t *tables) Prune(ctx context.Context, _ time.Duration, _ int) (int, bool, error) {
	return 0, false, t.do(ctx, "prune", func(*database) error { return nil })
}
