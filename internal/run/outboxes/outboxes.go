// Package outboxes makes several outboxes of one database, which a pattern of names chooses, look to a relay like one:
// one slot, one stream and one journal, in which each outbox is a source of its own. What is asked of rows is asked of
// each table in turn; the rest is asked once.
//
// A table that appears is a source from its first event on; what it held before is published by the next sweep of the
// reconciler. One that is dropped keeps what is recorded of it. One that the publication lacks is left alone, and the
// relay is degraded.
//
// Tested with relays that run, by package relay.
package outboxes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/decoder"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// Tables is the SQL side of a relay with several outboxes. Its methods are those of a [store.Store], which answers what
// is not asked of single tables.
type Tables struct {
	*store.Store // of the slot
	pattern      outbox.Pattern
	config       config.Postgres
	log          zerolog.Logger

	mu          sync.Mutex
	all         []*Outbox // in the order in which they were found
	byOID       map[uint32]*Outbox
	byForm      map[string]*Outbox // one of each form
	whole       map[uint32]bool    // by OID: the publication has all of it
	unpublished []store.Named      // that fit the pattern
	system      string             // and timeline, of Register
	timeline    int32

	reading *Outbox // whose page CatchUpRows read last
	rounds  rounds
}

// Outbox is one of several.
type Outbox struct {
	*store.Store
	Source       int32
	Schema, Name string
	Shape        store.Outbox // without columns if gone

	form  string                      // see store.Named
	state atomic.Pointer[store.State] // as it was read last
	gone  atomic.Bool                 // there is no such table any more: the WAL may still have rows of it

	// Of the reconciler: when it was told that the table was never looked through, and whether it has done that since.
	told  time.Time
	swept bool
}

// Recorded is the outbox's state as it was read last.
func (o *Outbox) Recorded() *store.State { return o.state.Load() }

func (o *Outbox) named() store.Named {
	return store.Named{OID: o.Shape.OID, Schema: o.Schema, Name: o.Name, Form: o.form}
}

// refresh reads the states of all outboxes that have a number.
func (t *Tables) refresh(ctx context.Context) ([]*Outbox, error) {
	states, err := t.States(ctx)
	if err != nil {
		return nil, err
	}
	all := t.Known()
	for _, o := range all {
		st := states[o.Source]
		if st == nil {
			return nil, fmt.Errorf("the state of the outbox %s.%s is gone", o.Schema, o.Name)
		}
		o.state.Store(st)
	}
	return all, nil
}

// Open makes Tables over the Store of the slot, which has the pattern.
func Open(root *store.Store, c config.Postgres, log zerolog.Logger) *Tables {
	chosen := root.Table()
	return &Tables{Store: root, pattern: outbox.Pattern{Schema: chosen.Schema, Table: chosen.Name},
		config: c, log: log, byOID: map[uint32]*Outbox{}, byForm: map[string]*Outbox{}}
}

// errNone reports that no table fits the pattern.
var errNone = fmt.Errorf("%w: no table fits outbox.tables; create one, or correct the pattern", store.ErrNoOutbox)

// namedMost bounds the tables that Unpublished names.
const namedMost = 20

// Unpublished says which tables fit the pattern and are not in the publication; "": there are none.
func (t *Tables) Unpublished() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.unpublished) == 0 {
		return ""
	}
	text := "rows of these tables, which fit outbox.tables, are not published, since the publication does not have them: "
	var names []string
	for _, n := range t.unpublished[:min(len(t.unpublished), namedMost)] {
		names = append(names, n.SQL())
	}
	text += strings.Join(names, ", ")
	if more := len(t.unpublished) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + "; as their owner: " + store.AddToPublication(t.config.Publication, names) +
		"; the rows that they have by then are published, too"
}

// present are the outboxes whose tables are there.
func (t *Tables) present() []*Outbox {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(t.all), func(o *Outbox) bool { return o.gone.Load() })
}

// Known are all outboxes that have a number.
func (t *Tables) Known() []*Outbox {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(t.all), func(o *Outbox) bool { return o.Source == 0 })
}

// Outbox looks which tables there are, and returns the shape that they share, with the OID 0. Tables that are new to a
// slot that has a state are registered: what they held before is left to a sweep.
func (t *Tables) Outbox(ctx context.Context) (store.Outbox, error) {
	list, err := t.Outboxes(ctx, t.pattern, t.config.Publication)
	if err != nil {
		return store.Outbox{}, err
	}
	published := slices.ContainsFunc(list, func(n store.Named) bool { return n.Published })
	var lacks []store.Named
	for _, n := range list {
		if published && !n.Published {
			lacks = append(lacks, n)
			continue
		}
		if _, err := t.find(ctx, n, nil, store.Stream); err != nil {
			return store.Outbox{}, err
		}
	}
	there := map[uint32]bool{}
	whole := map[uint32]bool{}
	for _, n := range list {
		there[n.OID], whole[n.OID] = true, n.Whole
	}
	t.mu.Lock()
	t.unpublished, t.whole = lacks, whole
	for _, o := range t.all {
		o.gone.Store(!there[o.Shape.OID])
	}
	t.mu.Unlock()
	all := t.present()
	if len(all) == 0 {
		return store.Outbox{}, errNone
	}
	shape := all[0].Shape
	for _, o := range all[1:] {
		if why := o.Shape.Beside(shape); why != "" {
			return store.Outbox{}, fmt.Errorf("outbox.tables: %s.%s does not fit: %s; give all one type, or correct the pattern",
				o.Schema, o.Name, why)
		}
	}
	shape.OID, shape.OIDs, shape.Schema, shape.Name = 0, nil, t.pattern.Schema, t.pattern.Table
	return shape, nil
}

// find is the outbox of the table. One that is new has the state, or is registered in the phase, if the slot is. One
// whose form has changed is read again.
func (t *Tables) find(ctx context.Context, n store.Named, st *store.State, phase string) (*Outbox, error) {
	t.mu.Lock()
	o, same := t.byOID[n.OID], t.byForm[n.Form]
	system, timeline := t.system, t.timeline
	t.mu.Unlock()
	if o != nil && o.Schema == n.Schema && o.Name == n.Name && (n.Form == "" || o.form == n.Form) &&
		(o.Source != 0 || system == "") {
		return o, nil
	}
	o = &Outbox{Store: t.Of(n.Schema, n.Name), Schema: n.Schema, Name: n.Name, form: n.Form}
	if err := o.look(ctx, n.OID, same); err != nil {
		return nil, err
	}
	var err error
	switch {
	case st != nil:
		o.Know(st)
	case system != "":
		if phase == store.Stream {
			if err = t.unclaimed(ctx, n); err != nil {
				return nil, err
			}
		}
		if st, err = o.Register(ctx, system, timeline, n.OID, phase); err != nil {
			return nil, err
		}
	}
	if st != nil {
		o.Source = st.Source
		o.state.Store(st)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = slices.DeleteFunc(t.all, func(x *Outbox) bool { return x.Shape.OID == n.OID })
	t.all, t.byOID[n.OID] = append(t.all, o), o
	if n.Form != "" && !o.gone.Load() {
		t.byForm[n.Form] = o
	}
	t.cover()
	if o.Source != 0 {
		t.log.Info().Str("outbox", n.Schema+"."+n.Name).Int32("source", o.Source).Str("phase", o.Recorded().Phase).
			Msg("found an outbox")
	}
	return o, nil
}

// look reads the table's shape, or takes that of one of its form.
func (o *Outbox) look(ctx context.Context, oid uint32, same *Outbox) error {
	if same != nil && o.form != "" {
		o.Shape = o.FormOf(same.Store, oid)
		return nil
	}
	shape, err := o.Store.Outbox(ctx)
	switch {
	case errors.Is(err, store.ErrNoOutbox), err == nil && shape.OID != oid:
		shape = store.Outbox{OID: oid, Schema: o.Schema, Name: o.Name, PayloadType: "jsonb"} // until the stream says
		o.gone.Store(true)
	case err != nil:
		return err
	}
	o.Shape = shape
	return nil
}

// cover tells the slot's Store the numbers. With the lock.
func (t *Tables) cover() {
	var stores []*store.Store
	for _, o := range t.all {
		if o.Source != 0 {
			stores = append(stores, o.Store)
		}
	}
	if len(stores) > 0 {
		t.Cover(stores)
	}
}

func (t *Tables) known(oid uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byOID[oid] != nil
}

// OfRelation is the outbox that a Relation message announces, nil if it is none. One that is new is registered, before
// its first row is taken.
func (t *Tables) OfRelation(ctx context.Context, r *decoder.Relation) (*Outbox, error) {
	t.mu.Lock()
	o := t.byOID[r.OID]
	t.mu.Unlock()
	if o != nil && o.Source != 0 {
		return o, nil
	}
	if !t.pattern.Fits(r.Schema, r.Name) {
		return nil, nil
	}
	return t.find(ctx, store.Named{OID: r.OID, Schema: r.Schema, Name: r.Name}, nil, store.Stream)
}

// Register registers the slot, and each table as a source of it, in the phase if the slot has no state yet.
func (t *Tables) Register(ctx context.Context, systemID string, timeline int32, tableOID uint32,
	phase string) (*store.State, error) {
	st, err := t.Store.Register(ctx, systemID, timeline, tableOID, phase)
	if err != nil {
		return nil, err
	}
	t.numbered(systemID, timeline)
	for _, o := range t.present() {
		if _, err := t.find(ctx, o.named(), nil, phase); err != nil {
			return nil, err
		}
	}
	return st, nil
}

func (t *Tables) numbered(system string, timeline int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.system, t.timeline = system, timeline
}

// State is the slot's. With it, tables that have no number yet get one.
func (t *Tables) State(ctx context.Context) (*store.State, error) {
	st, err := t.Store.State(ctx)
	if err != nil || st == nil {
		return st, err
	}
	t.numbered(st.SystemID, st.Timeline)
	states, err := t.States(ctx)
	if err != nil {
		return nil, err
	}
	registered, err := t.Registered(ctx)
	if err != nil {
		return nil, err
	}
	byOID := map[uint32]store.Named{}
	for _, n := range registered {
		byOID[n.OID] = n
	}
	for _, o := range t.present() {
		var known *store.State
		if n := byOID[o.Shape.OID]; n.Schema == o.Schema && n.Name == o.Name {
			known = states[n.Source]
		}
		if _, err = t.find(ctx, o.named(), known, store.Stream); err != nil {
			return nil, err
		}
	}
	for _, n := range registered {
		if t.known(n.OID) {
			continue
		}
		if _, err := t.find(ctx, n, states[n.Source], store.Stream); err != nil { // its table is gone
			return nil, err
		}
	}
	if _, err := t.refresh(ctx); err != nil {
		return nil, err
	}
	return st, nil
}
