package outboxes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// This file leaves an outbox out that cannot be published as it is, while the others go on. A relay with one outbox
// halts for the same reasons.
//
// From then on, and to the end of the session, none of its rows is taken from the stream, also when the table is right
// again before that: later rows of a key must not come before earlier ones. That rows are left out is committed before
// the first one is. A session that begins while the table is right publishes them from the table, marked as late,
// before it reads the stream. Rows that were deleted by then are not published, as after a lost slot.

// leftOut is whether rows of an outbox are taken.
type leftOut struct {
	why   atomic.Pointer[halt.Error] // why none is; nil: they are
	right atomic.Bool                // the table has been looked at since, and is right again
	noted atomic.Bool                // that rows are left out is committed
}

// wrong reports whether rows of the outbox are left out.
func (l *leftOut) wrong() bool { return l.why.Load() != nil }

func (o *Outbox) name() string { return o.Schema + "." + o.Name }

// read reads the shape of the outbox's table, or takes that of one that has the same form. Of one that was left out
// everything is looked at. It returns why the table cannot be published; an error is not the table's.
func (t *Tables) read(ctx context.Context, o, was, same *Outbox, comes bool) (*halt.Error, error) {
	again := was != nil && was.wrong()
	if again {
		same = nil
	}
	err := o.look(ctx, o.Shape.OID, same)
	if err == nil && again && !o.gone.Load() {
		if why := t.besides(o); why != nil {
			return why, nil
		}
		err = o.CheckExpressions(ctx)
	}
	if err == nil && comes {
		err = t.unclaimed(ctx, o.named())
	}
	if err == nil {
		return nil, nil
	}
	o.Shape = unread(o, o.Shape.OID)
	why := o.blame(err)
	if why != nil {
		err = nil
	}
	return why, err
}

// unread is the shape of a table that is gone, or cannot be read.
func unread(o *Outbox, oid uint32) store.Outbox {
	return store.Outbox{OID: oid, Schema: o.Schema, Name: o.Name, PayloadType: "jsonb"} // until the stream says
}

// blame is why the outbox cannot be published, if the error is about its table; nil for an error that any other table
// would give, too.
func (o *Outbox) blame(err error) (why *halt.Error) {
	if h, is := errors.AsType[*halt.Error](err); is {
		return h
	}
	if hidden, is := errors.AsType[*store.HiddenError](err); is {
		return &halt.Error{Code: halt.Setup, Reason: hidden.What, Risk: halt.RiskWAL, Cause: err, Remedy: hidden.Repair}
	}
	switch class := store.Classify(err); {
	case halt.Refused(err) != nil, errors.Is(err, store.ErrFenced), errors.Is(err, store.ErrLeaseLost):
	case class == store.Setup, errors.Is(err, store.ErrInherited), len(store.ExpressionErrors(err)) > 0:
		why = &halt.Error{Code: halt.Setup, Reason: fmt.Sprintf("outbox %s: %v", o.name(), err), Risk: halt.RiskWAL,
			Cause: err, Remedy: "run cdc-relay check: it names what is missing and the statement that fixes it"}
	case class == store.Unclassified:
		why = halt.MissingColumn(err)
	}
	return why
}

// besides is why the outbox cannot be one of the slot's beside most others, as these were when they were looked at.
func (t *Tables) besides(o *Outbox) *halt.Error {
	t.mu.Lock()
	shape := t.shape
	t.mu.Unlock()
	if shape == nil {
		return nil
	}
	if why := o.Shape.Beside(*shape); why != "" {
		return o.misfit(why)
	}
	return nil
}

// misfit is why the outbox cannot be one of the slot's, in words.
func (o *Outbox) misfit(why string) *halt.Error {
	return &halt.Error{Code: halt.Column, Reason: fmt.Sprintf("outbox %s: %s", o.name(), why), Risk: halt.RiskWAL,
		Remedy: "give all tables that fit outbox.tables one type, or correct the pattern"}
}

// incomplete is what the publication leaves out of an outbox.
func (t *Tables) incomplete(problems ...store.Problem) *halt.Error {
	var what, repair []string
	for _, p := range problems {
		what, repair = append(what, p.What), append(repair, p.Repair)
	}
	return halt.Incomplete(t.config.Publication, what, repair)
}

// leave leaves the outbox out from now on.
func (t *Tables) leave(ctx context.Context, o *Outbox, why *halt.Error) error {
	if o.Source != 0 && !o.noted.Load() {
		if err := o.NoteLeftOut(ctx); err != nil {
			return err
		}
		o.noted.Store(true)
	}
	o.right.Store(false)
	o.why.Store(why)
	t.mu.Lock()
	said := t.said[o.Shape.OID] == why.Reason
	t.said[o.Shape.OID] = why.Reason
	t.mu.Unlock()
	if !said {
		t.log.Warn().Str("outbox", o.name()).Str("code", why.Code).Str("reason", why.Reason).Str("remedy", why.Remedy).
			Str("page", why.Page()).Msg("an outbox is left out; once it is right, its rows are published from the table")
	}
	return nil
}

// again notes how the table of an outbox that is left out was found, or why one is left out from now on.
func (t *Tables) again(ctx context.Context, o *Outbox, why *halt.Error) error {
	if why != nil {
		return t.leave(ctx, o, why)
	}
	o.right.Store(time.Since(t.sparedAt(o)) > sparedRest)
	return nil
}

// sparedRest is how long an outbox stays left out whose table refused a statement: what a look sees of it may be right.
const sparedRest = 10 * time.Minute

func (t *Tables) sparedAt(o *Outbox) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.spared[o.Shape.OID]
}

// spare leaves out an outbox whose table caused the error, and returns nil then: the others go on.
func (t *Tables) spare(ctx context.Context, o *Outbox, err error) error {
	if err == nil {
		return nil
	}
	why := o.blame(err)
	if why == nil || len(t.present()) <= 1 {
		return err
	}
	t.mu.Lock()
	t.spared[o.Shape.OID] = time.Now()
	t.mu.Unlock()
	return t.leave(ctx, o, why)
}

// Begin begins with the tables as a session finds them: those that were left out are looked at as if they had come.
func (t *Tables) Begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = slices.DeleteFunc(t.all, func(o *Outbox) bool {
		if !o.wrong() {
			return false
		}
		delete(t.byOID, o.Shape.OID)
		delete(t.byNumber, o.Source)
		if t.byForm[o.form] == o {
			delete(t.byForm, o.form)
		}
		return true
	})
}

// Resume has the session that has taken over, whose slot has the state, begin with the tables whose rows were left out,
// or that were to be caught up with and could not be. It reports whether there are any.
func (t *Tables) Resume(ctx context.Context, slot *store.State) (bool, error) {
	var list []int32
	for _, o := range t.present() {
		st := o.Recorded()
		if st == nil || o.Source == 0 {
			continue
		}
		if st.Phase == store.Stream && st.CatchUpLate || st.Phase == store.CatchUp && slot.Phase == store.Stream {
			list = append(list, o.Source)
			t.log.Info().Str("outbox", o.name()).Msg("an outbox is right again; its rows are published from the table")
		}
	}
	if len(list) == 0 {
		return false, nil
	}
	return true, t.slot.CatchUpOf(ctx, list)
}

// Right names an outbox that is left out in this session, and that the next one can publish; "": there is none.
func (t *Tables) Right() string {
	for _, o := range t.there() {
		if o.wrong() && o.right.Load() {
			return o.name()
		}
	}
	return ""
}

// LeftOut says which outboxes are left out and why, those that the publication lacks apart; see Unpublished.
func (t *Tables) LeftOut() (texts []string) {
	lacks := t.lacking()
	more := 0
	for _, o := range t.there() {
		why := o.why.Load()
		switch {
		case why == nil, slices.ContainsFunc(lacks, func(n store.Named) bool { return n.OID == o.Shape.OID }):
		case len(texts) >= namedMost:
			more++
		default:
			texts = append(texts, fmt.Sprintf("outbox %s is left out: %s; to do: %s; its rows are then published from the "+
				"table, except those that were deleted", o.name(), why.Reason, strings.TrimRight(why.Remedy, "; ")))
		}
	}
	if more > 0 {
		texts = append(texts, fmt.Sprintf("%d more outboxes are left out; cdc-relay check names them", more))
	}
	return texts
}

// lacking are the tables that the publication lacks.
func (t *Tables) lacking() []store.Named {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unpublished
}
