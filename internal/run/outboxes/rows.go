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
	_, err := t.refresh(ctx)
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
		_, err = t.refresh(ctx)
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
// and while this relay has the slot, which each page makes sure of, no table ends its catch-up.
func (t *Tables) CatchUpRows(ctx context.Context, afterRow uint64, limit int) (_ []store.CatchUpRow, err error) {
	var list []*Outbox
	if afterRow == 0 {
		t.reading = nil
		list, _, err = t.listed(ctx)
	} else {
		list = t.wereBehind()
	}
	if err != nil {
		return nil, err
	}
	for _, o := range list {
		if t.reading != nil && o.Source != t.reading.Source {
			continue
		}
		rows, err := o.CatchUpRows(ctx, afterRow, limit)
		if err := t.spare(ctx, o, err); err != nil {
			return nil, err
		}
		if len(rows) > 0 {
			t.reading = o
			return rows, nil
		}
		t.reading, afterRow = nil, 0
	}
	return nil, nil
}

// FinishCatchUp ends the phase for each outbox, and for the slot.
func (t *Tables) FinishCatchUp(ctx context.Context) error {
	list, err := t.behind(ctx)
	if err != nil {
		return err
	}
	for _, o := range list {
		if err := o.FinishCatchUp(ctx); err != nil {
			return err
		}
	}
	return t.slot.FinishCatchUp(ctx)
}

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

// numberedAs is the outbox with the number, nil if its table is gone.
func (t *Tables) numberedAs(source int32) *Outbox {
	for _, o := range t.present() {
		if o.Source == source {
			return o
		}
	}
	return nil
}

// drop notes of a source whose table is gone that nothing of it is to be marked or deleted any more, as far as it does
// not wait longer than other steps. It reports whether there was something to note.
func (t *Tables) drop(ctx context.Context, source int32) (some bool, err error) {
	for _, o := range t.dropped() {
		if o.Source == source {
			n, err := o.NothingToMark(ctx)
			return n > 0, err
		}
	}
	return false, nil
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
	marked, drop                int32 // source
	dropped                     int
	deleted, dead, retried      int
	journal, deadLetters, audit int
	auditing                    *Outbox
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

// each is inTurn for steps, of which there may be more after one that did something.
func (t *Tables) each(at *int, do func(*Outbox) (rows int, more bool, err error)) (rows int, more bool, err error) {
	rows, more, err = inTurn(t, at, do)
	return rows, more || rows > 0 || err != nil, err
}

// DeleteStep deletes rows of the next table that has some to be deleted.
func (t *Tables) DeleteStep(ctx context.Context, retention time.Duration, limit int) (rows int, more bool, err error) {
	rows, more, err = t.each(&t.rounds.deleted, func(o *Outbox) (int, bool, error) {
		return o.DeleteStep(ctx, retention, limit)
	})
	if rows == 0 && err == nil && len(t.dropped()) > 0 {
		err = t.dropNext(ctx)
	}
	return rows, more, err
}

// Prune removes journal rows of the next table for which some are due, and those of tables that are gone.
func (t *Tables) Prune(ctx context.Context, retention time.Duration, limit int) (rows int, more bool, err error) {
	rows, more, err = t.each(&t.rounds.journal, func(o *Outbox) (int, bool, error) { return o.Prune(ctx, retention, limit) })
	if dropped := t.dropped(); rows == 0 && err == nil && len(dropped) > 0 {
		o := dropped[t.rounds.dropped%len(dropped)]
		t.rounds.dropped++
		return o.PruneDropped(ctx, retention, limit)
	}
	return rows, more, err
}

// PruneDead removes dead letters of the next table for which some are due.
func (t *Tables) PruneDead(ctx context.Context, retention time.Duration, limit int) (rows int, more bool, err error) {
	return t.each(&t.rounds.deadLetters, func(o *Outbox) (int, bool, error) { return o.PruneDead(ctx, retention, limit) })
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

// Arrived reports whether a table was never looked through, and has the next rounds of the reconciler be of it.
func (t *Tables) Arrived() bool {
	for _, o := range t.present() {
		st := o.Recorded()
		if o.swept || st == nil || st.Swept || st.Phase != store.Stream || time.Since(o.told) < arrivedAgain {
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
