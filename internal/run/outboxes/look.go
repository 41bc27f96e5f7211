package outboxes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// This file looks which tables there are, and what they are.

// Outbox looks which tables there are, and returns the shape that they share, with the OID 0. Tables that are new to a
// slot that has a state are registered: what they held before is listed with what the others held, or left to a sweep
// if that has been done.
func (t *Tables) Outbox(ctx context.Context) (store.Outbox, error) {
	list, err := t.slot.Outboxes(ctx, t.pattern, t.config.Publication)
	if err != nil {
		return store.Outbox{}, err
	}
	published := slices.ContainsFunc(list, func(n store.Named) bool { return n.Published })
	var lacks []store.Named
	there := map[uint32]bool{}
	for _, n := range list {
		there[n.OID] = true
		if published && !n.Published {
			lacks = append(lacks, n)
		}
		if err := t.lookAt(ctx, n, published); err != nil {
			return store.Outbox{}, err
		}
	}
	t.mu.Lock()
	t.unpublished, t.seen = lacks, there
	for _, o := range t.all {
		o.gone.Store(!there[o.Shape.OID])
	}
	t.mu.Unlock()
	return t.shared(ctx)
}

// lookAt looks at one of the tables, and at what the publication, which has some, has of it. One that it lacks, and
// never had, is left alone.
func (t *Tables) lookAt(ctx context.Context, n store.Named, some bool) error {
	var why *halt.Error
	switch {
	case some && !n.Published:
		repair := store.AddToPublication(t.config.Publication, []string{n.SQL()})
		why = t.incomplete(store.Problem{What: fmt.Sprintf("table %s is not in it", n.SQL()), Repair: repair})
	case n.Published && !n.Whole:
		problems, err := t.slot.Of(n.Schema, n.Name).CheckPublication(ctx, t.config.Publication)
		if err == nil && len(problems) > 0 {
			why = t.incomplete(problems...)
		}
	}
	t.mu.Lock()
	known := t.byOID[n.OID] != nil
	alone := some && !n.Published && !known
	if alone {
		why = nil // the stream may have it before the next look
	}
	t.hidden[n.OID] = why
	t.mu.Unlock()
	if alone {
		return nil
	}
	_, err := t.find(ctx, n, nil, store.AsSlot)
	return err
}

// shared is the shape that most tables have. The others cannot be outboxes of the same slot, and are left out. The
// error is that of the first one if there is none that is right.
func (t *Tables) shared(ctx context.Context) (store.Outbox, error) {
	all := t.present()
	if len(all) == 0 {
		for _, o := range t.there() {
			return store.Outbox{}, o.why.Load()
		}
		return store.Outbox{}, errNone
	}
	var shape store.Outbox
	most := 0
	for i, o := range all {
		alike := 0
		for _, other := range all {
			if other.Shape.Beside(o.Shape) == "" {
				alike++
			}
		}
		if alike > most {
			shape, most = all[i].Shape, alike
		}
		if 2*alike >= len(all) { // no other one is shared by more
			break
		}
	}
	for _, o := range all {
		if why := o.Shape.Beside(shape); why != "" {
			if err := t.leave(ctx, o, o.misfit(why)); err != nil {
				return store.Outbox{}, err
			}
		}
	}
	t.mu.Lock()
	had := shape // what is returned is changed
	t.shape, t.like = &had, all[0].SQL
	for _, o := range t.all {
		t.lend(o)
	}
	t.mu.Unlock()
	shape.OID, shape.OIDs, shape.Schema, shape.Name = 0, nil, t.pattern.Schema, t.pattern.Table
	return shape, nil
}

// still reports whether the outbox is known, is not left out, and its table is what it was. To a slot that has a state
// it has a number.
func (o *Outbox) still(n store.Named, state bool) bool {
	return o != nil && !o.wrong() && (o.Source != 0 || !state) && o.Schema == n.Schema && o.Name == n.Name &&
		(n.Form == "" || o.form == n.Form)
}

// find is the outbox of the table. One that is new has the state, or is registered in the phase, if the slot is. One
// whose form has changed is read again, as is one that was left out.
func (t *Tables) find(ctx context.Context, n store.Named, st *store.State, phase string) (*Outbox, error) {
	t.mu.Lock()
	was, same, hidden := t.byOID[n.OID], t.byForm[n.Form], t.hidden[n.OID]
	system, timeline := t.system, t.timeline
	t.mu.Unlock()
	if was.still(n, system != "") && hidden == nil {
		return was, nil
	}
	o := &Outbox{SQL: t.slot.Of(n.Schema, n.Name), Schema: n.Schema, Name: n.Name, form: n.Form}
	o.Shape.OID = n.OID
	why, err := t.read(ctx, o, was, same, st == nil && system != "" && phase == store.AsSlot)
	if err != nil {
		return nil, err
	}
	why = cmp.Or(why, hidden)
	if was != nil && was.Source != 0 && (why != nil || was.why.Load() != nil) {
		return was, t.again(ctx, was, why)
	}
	switch {
	case st != nil:
		o.Know(st)
	case system != "" && why == nil:
		if st, err = o.Register(ctx, system, timeline, n.OID, phase); err != nil {
			return nil, err
		}
	}
	if st != nil {
		o.Source = st.Source
		o.state.Store(st)
	}
	if why != nil {
		if err := t.leave(ctx, o, why); err != nil {
			return nil, err
		}
	}
	t.take(o, n.Form)
	return o, nil
}

// isGone reports whether the last look at all tables, if there was one, has not found the table.
func (t *Tables) isGone(oid uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seen != nil && !t.seen[oid]
}

// takeGone takes an outbox whose table the last look has not found. A relay whose tenants come and go for years has
// more of these than of others: looking for each would make its starts ever longer.
func (t *Tables) takeGone(n store.Named, st *store.State) {
	o := &Outbox{SQL: t.slot.Of(n.Schema, n.Name), Schema: n.Schema, Name: n.Name, Source: st.Source}
	o.Shape = unread(o, n.OID)
	o.gone.Store(true)
	o.Know(st)
	o.state.Store(st)
	t.take(o, "")
}

// take takes the outbox among those that are known, in place of what its table was.
func (t *Tables) take(o *Outbox, form string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if was := t.byOID[o.Shape.OID]; was != nil {
		t.all[slices.Index(t.all, was)] = o
		delete(t.byNumber, was.Source)
	} else {
		t.all = append(t.all, o)
	}
	t.byOID[o.Shape.OID] = o
	if o.Source != 0 {
		t.byNumber[o.Source] = o
		t.slot.Cover([]SQL{o.SQL})
	}
	if form != "" && !o.gone.Load() && !o.wrong() {
		t.byForm[form] = o
	}
	t.lend(o)
	if o.Source != 0 && !o.wrong() && !o.gone.Load() {
		t.log.Info().Str("outbox", o.name()).Int32("source", o.Source).Str("phase", o.Recorded().Phase).
			Msg("found an outbox")
	}
}

// lend gives an outbox whose table is gone, or cannot be read, the form of another: that is the form of what is
// recorded of it. With the lock.
func (t *Tables) lend(o *Outbox) {
	if t.like != nil && len(o.Shape.Columns) == 0 {
		o.FormOf(t.like, o.Shape.OID)
	}
}

// look reads the table's shape, or takes that of one of its form.
func (o *Outbox) look(ctx context.Context, oid uint32, same *Outbox) error {
	if same != nil && o.form != "" {
		o.Shape = o.FormOf(same.SQL, oid)
		return nil
	}
	shape, err := o.SQL.Outbox(ctx)
	switch {
	case errors.Is(err, store.ErrNoOutbox), err == nil && shape.OID != oid:
		shape = unread(o, oid)
		o.gone.Store(true)
	case err != nil:
		return err
	}
	o.Shape = shape
	return nil
}
