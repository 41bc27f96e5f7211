// Package outboxes makes several outboxes of one database, which a pattern of names chooses, look to a relay like one:
// one slot, one stream and one journal, in which each outbox is a source of its own. What is asked of rows is asked of
// each table in turn; the rest is asked once.
//
// A table that appears is a source from its first event on; what it held before is published by the next sweep of the
// reconciler. One that is dropped keeps what is recorded of it. One that the publication lacks, or that has become
// something that cannot be published, is left out, and the relay is degraded: see leftout.go.
//
// Tested with relays that run, by package relay.
package outboxes

import (
	"context"
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
	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// Tables answers what a relay with several outboxes asks of single tables, with methods like those of a [store.Store].
// The rest is for the slot's Store.
type Tables struct {
	slot    SQL
	pattern outbox.Pattern
	config  config.Postgres
	log     zerolog.Logger

	mu          sync.Mutex
	all         []*Outbox          // in the order in which they were found
	byOID       map[uint32]*Outbox // the same
	byNumber    map[int32]*Outbox  // those of them that have one
	byForm      map[string]*Outbox // one of each form
	seen        map[uint32]bool    // OIDs of the tables that there were at the last look; nil: there was none
	unpublished []store.Named      // that fit the pattern
	system      string             // and timeline, of Register
	timeline    int32

	reading int32          // source whose page CatchUpRows read last
	done    map[int32]bool // sources whose lists it has read to their ends
	rounds  rounds
	shape   *store.Outbox          // that most tables had at the last look
	like    SQL                    // of a table that was right then
	hidden  map[uint32]*halt.Error // by OID: what the publication leaves out of a table
	said    map[uint32]string      // by OID: why a table is left out, as it was logged
	spared  map[uint32]time.Time   // by OID: when a table refused a statement
}

// Outbox is one of several.
type Outbox struct {
	SQL
	Source       int32
	Schema, Name string
	Shape        store.Outbox // without columns if gone

	form  string                      // see store.Named
	state atomic.Pointer[store.State] // as it was read last
	gone  atomic.Bool                 // there is no such table any more: the WAL may still have rows of it

	leftOut // while its rows are not taken
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
func (t *Tables) refresh(ctx context.Context) error {
	states, err := t.slot.States(ctx)
	if err != nil {
		return err
	}
	for _, o := range t.Known() {
		st := states[o.Source]
		if st == nil {
			return fmt.Errorf("the state of the outbox %s.%s is gone", o.Schema, o.Name)
		}
		o.state.Store(st)
	}
	return nil
}

// Several returns t: it tells a relay whose Tables embed it that there are several outboxes.
func (t *Tables) Several() *Tables { return t }

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

// present are the outboxes whose tables are there and not left out.
func (t *Tables) present() []*Outbox {
	return slices.DeleteFunc(t.there(), func(o *Outbox) bool { return o.why.Load() != nil })
}

// there are the outboxes whose tables are there.
func (t *Tables) there() []*Outbox {
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

func (t *Tables) known(oid uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byOID[oid] != nil
}

// OfRelation is the outbox that a Relation message announces, nil if it is none, or its rows are left out. One that is
// new is registered, before its first row is taken. Misfit is why rows of the relation cannot be made into events.
func (t *Tables) OfRelation(ctx context.Context, r *decoder.Relation, misfit error) (*Outbox, error) {
	t.mu.Lock()
	o := t.byOID[r.OID]
	t.mu.Unlock()
	if o == nil || o.Source == 0 {
		if !t.pattern.Fits(r.Schema, r.Name) {
			return nil, nil
		}
		var err error
		if o, err = t.find(ctx, store.Named{OID: r.OID, Schema: r.Schema, Name: r.Name}, nil, store.AsSlot); err != nil {
			return nil, err
		}
	}
	if misfit != nil && !o.wrong() {
		if err := t.leave(ctx, o, halt.MissingColumn(misfit)); err != nil {
			return nil, err
		}
	}
	if o.wrong() {
		return nil, nil
	}
	return o, nil
}

// Register registers the slot, and each table as a source of it, in the phase if the slot has no state yet.
func (t *Tables) Register(ctx context.Context, systemID string, timeline int32, tableOID uint32,
	phase string) (*store.State, error) {
	st, err := t.slot.Register(ctx, systemID, timeline, tableOID, phase)
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
	st, err := t.slot.State(ctx)
	if err != nil || st == nil {
		return st, err
	}
	t.numbered(st.SystemID, st.Timeline)
	states, err := t.slot.States(ctx)
	if err != nil {
		return nil, err
	}
	registered, err := t.slot.Registered(ctx)
	if err != nil {
		return nil, err
	}
	byOID := map[uint32]store.Named{}
	for _, n := range registered {
		byOID[n.OID] = n
	}
	for _, o := range t.there() {
		var known *store.State
		if n := byOID[o.Shape.OID]; n.Schema == o.Schema && n.Name == o.Name {
			known = states[n.Source]
		}
		if _, err = t.find(ctx, o.named(), known, store.AsSlot); err != nil {
			return nil, err
		}
	}
	for _, n := range registered {
		if t.known(n.OID) {
			continue
		}
		st := states[n.Source]
		if st != nil && t.isGone(n.OID) {
			t.takeGone(n, st)
			continue
		}
		// Its table is gone, or is not published any more.
		if _, err := t.find(ctx, n, st, store.AsSlot); err != nil {
			return nil, err
		}
	}
	if err := t.refresh(ctx); err != nil {
		return nil, err
	}
	return st, nil
}
