package simulator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/run/outboxes"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
)

// at is the key of an event of the source; 0: of the tables' own.
func (t *tables) at(source int32, id []byte) recorded {
	if t.w.mutant == noSource {
		source = 0
	} else {
		source = t.of(source)
	}
	return recorded{source, string(id)}
}

// of is the source of an event; one of the only outbox has none.
func (t *tables) of(source int32) int32 { return cmp.Or(source, t.source) }

// covers reports whether the tables answer for what has the source.
func (t *tables) covers(source int32) bool {
	return source == t.key() || slices.Contains(t.members, source)
}

// stateKey is the key of the source's state: the slot's own has its name.
func (t *tables) stateKey() string {
	if t.schema == "" {
		return t.slot
	}
	return fmt.Sprintf("%s:%d", t.slot, t.source)
}

// key is the source in the keys of the relay's tables.
func (t *tables) key() int32 {
	if t.w.mutant == noSource {
		return 0
	}
	return t.source
}

// statesOf are the state of the slot and those of its outboxes.
func (db *database) statesOf(slot string) (states []*store.State) {
	for _, key := range sortedKeys(db.states) {
		if key == slot || strings.HasPrefix(key, slot+":") {
			states = append(states, db.states[key])
		}
	}
	return states
}

func (t *tables) noteListed(db *database) {
	st := db.states[t.stateKey()]
	st.CatchUpReady, st.Era, t.audit(db).SweptAt = true, t.epoch, clock()
}

// event is the row as the table gives it, with its source if it is of one of several outboxes.
func (t *tables) event(r *row) outbox.Event {
	e := r.event()
	if t.schema != "" {
		e.Source = t.source
	}
	return e
}

// event is the row without its source.
func (r *row) event() outbox.Event {
	e := outbox.Event{
		ID: []byte(r.id), AggregateType: []byte(r.kind), EventType: []byte("made"), Payload: []byte(r.payload),
		CreatedAt: []byte(r.createdAt()),
	}
	if r.key != "" {
		e.AggregateID = []byte(r.key)
	}
	if r.headers != "" {
		e.Headers = []byte(r.headers)
	}
	return e
}

// eventSource is the source of the tables' events: 0 unless they are one of several outboxes.
func (t *tables) eventSource() int32 {
	if t.schema == "" {
		return 0
	}
	return t.source
}

// own is the outbox that the tables are of, or the error of a statement on it: its name may be that of another table.
func (t *tables) own() (*table, error) {
	if t.schema == "" {
		return t.w.server.table, nil
	}
	for _, of := range t.w.server.present() {
		switch {
		case of.schema != t.schema:
		case of.oid == t.oid:
			return of, nil
		default:
			return nil, store.ErrOtherTable
		}
	}
	return nil, &pgconn.PgError{Code: "42P01", Message: "relation does not exist"}
}

// openSeveral makes the relay's door to several outboxes.
func (w *world) openSeveral(root *tables) relay.Tables {
	c := w.profile.config.Postgres
	c.Slot = root.slot
	all := outboxes.Over(side{asked{root}}, pattern, c, zerolog.Nop())
	if w.profile.people {
		return severalAsked{all, ofAsked{asked{root}}}
	}
	return several{all, ofSlot{root}}
}

// several and severalAsked put package outboxes in front of the slot's tables.
type (
	several struct {
		*tablesOfAll
		ofSlot
	}
	severalAsked struct {
		*tablesOfAll
		ofAsked
	}
	tablesOfAll = outboxes.Tables
	ofSlot      struct{ *tables }
	ofAsked     struct{ asked }
)

// side is the made-up tables of the slot, or of one outbox, as package outboxes has them.
type side struct{ asked }

// Of makes the tables of one outbox.
func (s side) Of(schema, _ string) outboxes.SQL {
	member := *s.tables
	member.schema, member.source, member.members = schema, 0, nil
	return side{asked{&member}}
}

// Cover notes more sources for which the slot's tables answer.
func (s side) Cover(members []outboxes.SQL) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	for _, m := range members {
		if source := m.(side).source; !slices.Contains(s.members, source) {
			s.members = append(s.members, source)
		}
	}
}

// FormOf gives the tables the form of others.
func (s side) FormOf(_ outboxes.SQL, oid uint32) store.Outbox {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.oid = oid
	return s.shape(oid)
}

// Know notes the source.
func (s side) Know(st *store.State) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.source, s.oid = st.Source, st.TableOID
}

// Outboxes lists the tables that there are.
func (t *tables) Outboxes(ctx context.Context, _ outbox.Pattern, _ string) (list []store.Named, err error) {
	err = t.do(ctx, "outboxes", func(db *database) error {
		for _, of := range t.w.server.present() {
			list = append(list, store.Named{OID: of.oid, Schema: of.schema, Name: outboxName, Form: "one",
				Published: db.published && !of.hidden, Whole: db.published && !of.hidden})
		}
		return nil
	})
	return list, err
}

// Registered lists the outboxes that have a state of their own.
func (t *tables) Registered(ctx context.Context) (list []store.Named, err error) {
	err = t.do(ctx, "registered", func(db *database) error {
		for of, source := range db.sources {
			if of.slot == t.slot && of.oid != 0 {
				list = append(list, store.Named{OID: of.oid, Schema: db.schemas[source], Name: outboxName, Published: true,
					Source: source})
			}
		}
		slices.SortFunc(list, func(a, b store.Named) int { return cmp.Compare(a.Source, b.Source) })
		return nil
	})
	return list, err
}

// States are those of the outboxes.
func (t *tables) States(ctx context.Context) (states map[int32]*store.State, err error) {
	states = map[int32]*store.State{}
	err = t.do(ctx, "states", func(db *database) error {
		for of, source := range db.sources {
			if of.slot != t.slot || of.oid == 0 {
				continue
			}
			member := tables{slot: t.slot, schema: db.schemas[source], source: source, w: t.w}
			states[source] = member.state(db)
		}
		return nil
	})
	return states, err
}

// MemoriesOf is empty, as Memories is.
func (t *tables) MemoriesOf(context.Context, []store.Named) ([]store.Memory, error) { return nil, nil }

// CreatePublicationOf makes the publication.
func (t *tables) CreatePublicationOf(ctx context.Context, name string, _ []store.Named) error {
	return t.CreatePublication(ctx, name)
}

// ListsReady notes that all lists of a catch-up are made.
func (t *tables) ListsReady(ctx context.Context) error {
	return t.fenced(ctx, "lists ready", func(db *database) error {
		t.noteListed(db)
		t.durable()
		return nil
	})
}

// NoteBaseline is not played: outbox.catch_up is true.
func (t *tables) NoteBaseline(context.Context) error { return nil }

// NoteLeftOut notes that rows of the outbox are not taken from the stream.
func (t *tables) NoteLeftOut(ctx context.Context) error {
	return t.do(ctx, "note left out", func(db *database) error {
		db.states[t.stateKey()].CatchUpLate = true
		t.durable()
		t.w.note("p%d leaves %s out", t.p.number, t.schema)
		return nil
	})
}

// CatchUpOf puts the outboxes back into phase catch_up, and the slot.
func (t *tables) CatchUpOf(ctx context.Context, sources []int32) error {
	return t.fenced(ctx, "catch up of", func(db *database) error {
		all := []*store.State{db.states[t.slot]}
		for _, source := range sources {
			all = append(all, db.states[fmt.Sprintf("%s:%d", t.slot, source)])
		}
		for _, st := range all {
			st.Baseline = st.Baseline || st.Phase == store.Stream
			st.Phase, st.CatchUpReady, st.Dirty = store.CatchUp, false, true
		}
		t.durable()
		t.w.note("p%d catches up with %v", t.p.number, sources)
		return nil
	})
}

// NextUnmarked is the next source that has rows to be marked or deleted.
func (t *tables) NextUnmarked(ctx context.Context, after int32) (source int32, err error) {
	err = t.do(ctx, "next unmarked", func(db *database) error {
		source = 0
		for _, b := range db.batches {
			if !b.mirrored && b.source > after && slices.Contains(t.members, b.source) && (source == 0 || b.source < source) {
				source = b.source
			}
		}
		return nil
	})
	return source, err
}

// Deletable may give outboxes with no row that can be deleted now, so it gives all.
func (t *tables) Deletable(context.Context, time.Duration) ([]int32, error) {
	return slices.Clone(t.members), nil
}

// Prunable gives all, as Deletable does.
func (t *tables) Prunable(context.Context, time.Duration) ([]int32, error) {
	return slices.Clone(t.members), nil
}

// DeadPrunable gives all, as Deletable does.
func (t *tables) DeadPrunable(context.Context, time.Duration) ([]int32, error) {
	return slices.Clone(t.members), nil
}
