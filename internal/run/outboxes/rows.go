package outboxes

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// This file asks each table for rows, one after the other.

// markedAtOnce bounds how many tables one MirrorStep tries in which nothing can be marked now.
const markedAtOnce = 50

// MirrorStep marks rows of the next table that has some to be marked.
func (t *Tables) MirrorStep(ctx context.Context, limit int) (rows int, more bool, err error) {
	for range markedAtOnce {
		source, err := t.slot.NextUnmarked(ctx, t.rounds.marked)
		if err != nil {
			return 0, false, err
		}
		if source == 0 {
			if t.rounds.marked == 0 {
				return 0, more, nil
			}
			t.rounds.marked = 0
			continue
		}
		t.rounds.marked = source
		if o := t.numberedAs(source); o != nil {
			rows, _, err := o.MirrorStep(ctx, limit)
			if more = true; rows > 0 || err != nil {
				return rows, true, err
			}
		} else if some, err := t.drop(ctx, source); some || err != nil {
			return 0, true, err
		}
	}
	return 0, more, nil
}

// numberedAs is the outbox with the number, nil if its table is gone or left out.
func (t *Tables) numberedAs(source int32) *Outbox {
	if o := t.withNumber(source); o != nil && !o.absent() {
		return o
	}
	return nil
}

// withNumber is the outbox with the number, whether its table is there or not.
func (t *Tables) withNumber(source int32) *Outbox {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byNumber[source]
}

// absent reports that the outbox's table is gone or left out.
func (o *Outbox) absent() bool { return o.gone.Load() || o.wrong() }

// drop notes of a source whose table is gone that nothing of it is to be marked or deleted any more, as far as it does
// not wait longer than other steps. It reports whether there was something to note.
func (t *Tables) drop(ctx context.Context, source int32) (some bool, err error) {
	o := t.withNumber(source)
	if o == nil || !o.gone.Load() {
		return false, nil
	}
	n, err := o.NothingToMark(ctx)
	return n > 0, err
}

// dropped are the outboxes whose tables are gone.
func (t *Tables) dropped() []*Outbox {
	return slices.DeleteFunc(t.Known(), func(o *Outbox) bool { return !o.gone.Load() })
}

// dropNext is drop for the next source that has batches which are not marked.
func (t *Tables) dropNext(ctx context.Context) error {
	source, err := t.slot.NextUnmarked(ctx, t.rounds.drop)
	if err == nil && source != 0 {
		_, err = t.drop(ctx, source)
	}
	t.rounds.drop = source
	return err
}

// rounds are where work that goes round the tables stands. Each is of one goroutine.
type rounds struct {
	marked, drop                  int32 // source
	dead, retried, audit          int
	deleted, journal, deadLetters due
	auditing                      *Outbox
}

// next is the table behind the one at which the round stands. Nil: there is none.
func (t *Tables) next(at *int) *Outbox {
	all := t.present()
	if len(all) == 0 {
		return nil
	}
	*at %= len(all)
	*at++
	return all[*at-1]
}

// inTurn asks tables in turn until one has done something, or all were asked.
func inTurn[T any](t *Tables, at *int, do func(*Outbox) (int, T, error)) (n int, rest T, err error) {
	for range t.present() {
		o := t.next(at)
		if o == nil {
			break
		}
		if n, rest, err = do(o); n > 0 || err != nil {
			return n, rest, err
		}
	}
	return 0, rest, nil
}

// due are sources that may have something to be removed. It is of one goroutine.
type due []int32

// step removes something of the next source that has some. When none is left, ask gives those of the next round.
func (d *due) step(t *Tables, ask func() ([]int32, error),
	do func(*Outbox) (rows int, more bool, err error)) (rows int, more bool, err error) {
	if len(*d) == 0 {
		if *d, err = ask(); err != nil {
			return 0, false, err
		}
	}
	for len(*d) > 0 {
		if o := t.withNumber((*d)[0]); o != nil {
			rows, more, err = do(o)
		}
		if !more || err != nil {
			*d = (*d)[1:]
		}
		if rows > 0 || more || err != nil {
			return rows, len(*d) > 0, err
		}
	}
	return 0, false, nil
}

// DeleteStep deletes rows of the next table that has some to be deleted.
func (t *Tables) DeleteStep(ctx context.Context, retention time.Duration, limit int) (rows int, more bool, err error) {
	rows, more, err = t.rounds.deleted.step(t, func() ([]int32, error) { return t.slot.Deletable(ctx, retention) },
		func(o *Outbox) (int, bool, error) {
			if o.absent() {
				return 0, false, nil
			}
			return o.DeleteStep(ctx, retention, limit)
		})
	if rows == 0 && err == nil && len(t.dropped()) > 0 {
		err = t.dropNext(ctx)
	}
	return rows, more, err
}

// Prune removes journal rows of the next table for which some are due.
func (t *Tables) Prune(ctx context.Context, retention time.Duration, limit int) (rows int, more bool, err error) {
	return t.rounds.journal.step(t, func() ([]int32, error) { return t.slot.Prunable(ctx, retention) },
		func(o *Outbox) (int, bool, error) {
			switch {
			case o.gone.Load():
				return o.PruneDropped(ctx, retention, limit)
			case o.wrong():
				return 0, false, nil
			}
			return o.Prune(ctx, retention, limit)
		})
}

// PruneDead removes dead letters of the next table for which some are due.
func (t *Tables) PruneDead(ctx context.Context, retention time.Duration, limit int) (rows int, more bool, err error) {
	return t.rounds.deadLetters.step(t, func() ([]int32, error) { return t.slot.DeadPrunable(ctx, retention) },
		func(o *Outbox) (int, bool, error) {
			if o.absent() {
				return 0, false, nil
			}
			return o.PruneDead(ctx, retention, limit)
		})
}

// ShowDead shows dead letters in the rows of the next table.
func (t *Tables) ShowDead(ctx context.Context, skip, limit int) (due, left int, err error) {
	return inTurn(t, &t.rounds.dead, func(o *Outbox) (int, int, error) { return o.ShowDead(ctx, skip, limit) })
}

// ShowRetried shows failed attempts in the rows of the next table.
func (t *Tables) ShowRetried(ctx context.Context, skip, limit int) (due, left int, err error) {
	return inTurn(t, &t.rounds.retried, func(o *Outbox) (int, int, error) { return o.ShowRetried(ctx, skip, limit) })
}

// Tables is how many there are.
func (t *Tables) Tables() int { return len(t.present()) }

// arrivedAgain is when a table is named again that was not looked through after all, as the session has ended.
const arrivedAgain = time.Minute

// Arrived reports whether a table was never looked through, be it one that another relay has registered for a catch-up
// that was over, and has the next rounds of the reconciler be of it.
func (t *Tables) Arrived() bool {
	for _, o := range t.present() {
		st := o.Recorded()
		if o.swept || st == nil || st.Swept || time.Since(o.told) < arrivedAgain {
			continue
		}
		o.told, t.rounds.auditing = time.Now(), o
		return true
	}
	return false
}

// NextTable has the next rounds of the reconciler be of another table.
func (t *Tables) NextTable() { t.rounds.auditing = t.next(&t.rounds.audit) }

// audited is the table of the present rounds. What they have seen of one that is gone says nothing of another.
func (t *Tables) audited() (*Outbox, error) {
	o := t.rounds.auditing
	if o == nil || o.gone.Load() || o.wrong() {
		return nil, errNotThere
	}
	return o, nil
}

var errNotThere = errors.New("the table that was looked through is gone, or left out; the next one is looked through")

// AuditState is of the table of the present rounds, or the next one if that is gone.
func (t *Tables) AuditState(ctx context.Context) (store.AuditState, error) {
	o, err := t.audited()
	if err != nil {
		t.NextTable()
		o, err = t.audited()
	}
	if err != nil {
		return store.AuditState{}, err
	}
	return o.AuditState(ctx)
}

// SaveHorizon is of the table of the present rounds.
func (t *Tables) SaveHorizon(ctx context.Context, horizon time.Time) error {
	o, err := t.audited()
	if err != nil {
		return err
	}
	return o.SaveHorizon(ctx, horizon)
}

// SaveHorizons is SaveHorizon of all tables that are to be caught up with.
func (t *Tables) SaveHorizons(ctx context.Context, horizon time.Time) error {
	list, err := t.behind(ctx)
	for _, o := range list {
		err = cmp.Or(err, o.SaveHorizon(ctx, horizon))
	}
	return err
}

// SaveSweep is of the table of the present rounds.
func (t *Tables) SaveSweep(ctx context.Context, at time.Time) error {
	o, err := t.audited()
	if err != nil {
		return err
	}
	err = o.SaveSweep(ctx, at)
	o.swept = o.swept || err == nil
	return err
}

// UnrecordedSince is of the table of the present rounds.
func (t *Tables) UnrecordedSince(ctx context.Context, since time.Time, limit int) ([][]byte, error) {
	o, err := t.audited()
	if err != nil {
		return nil, err
	}
	return o.UnrecordedSince(ctx, since, limit)
}

// UnrecordedIn is of the table of the present rounds.
func (t *Tables) UnrecordedIn(ctx context.Context, from, to int64, limit int) ([][]byte, error) {
	o, err := t.audited()
	if err != nil {
		return nil, err
	}
	return o.UnrecordedIn(ctx, from, to, limit)
}

// LateRows is of the table of the present rounds.
func (t *Tables) LateRows(ctx context.Context, ids [][]byte, limit int) ([]store.CatchUpRow, error) {
	o, err := t.audited()
	if err != nil {
		return nil, err
	}
	return o.LateRows(ctx, ids, limit)
}
