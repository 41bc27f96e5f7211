package simulator

import (
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// Several outboxes with one slot: each is a source of its own, and all have the same ids and keys. The relay's package
// outboxes is the real one; below it each outbox has tables of its own, as each has a [store.Store].

// pattern chooses the outboxes.
var pattern = outbox.Pattern{Schema: "tenant_*", Table: outboxName}

// severalSources draws, for a part of the runs, how many outboxes there are.
func (p *profile) severalSources(d *dice) {
	p.sources = 1
	if !d.chance(0.25) {
		return
	}
	p.sources = d.between(2, 4)
	p.config.Outbox.Table, p.config.Outbox.Tables = config.Default().Outbox.Table, pattern.Schema+"."+pattern.Table
	p.transactions += p.sources
	p.secondTable, p.losses = false, 0 // events of several outboxes are not republished
	p.config.Postgres.AllowSecondSlot = false
	if p.comes, p.goes, p.again = d.chance(0.3), d.chance(0.3), d.chance(0.5); p.comes || p.goes {
		// A row that is neither in the stream nor listed while its table is unknown, or gone, is no one's.
		p.slotLost, p.deletesSpooled, p.drift, p.longTransaction, p.dropped, p.unreadable = 0, false, false, false, false,
			false
		p.length += time.Second
	}
}

func (w *world) several() bool { return w.profile.sources > 1 }

// newTables makes the outboxes of a run.
func newTables(n int) (all []*table) {
	for i := range n {
		t := newTable(uint32(16384+i), i+1)
		if n > 1 {
			t.schema = "tenant_" + strconv.Itoa(i+1)
		}
		all = append(all, t)
	}
	return all
}

// written are the tables that a transaction writes to.
func (s *server) written(d *dice) []*table {
	if !s.w.several() {
		return s.tables
	}
	there := s.present()
	if len(there) < 2 || d.chance(0.4) {
		return there
	}
	return []*table{one(d, there...)}
}

// present are the outboxes that are not dropped.
func (s *server) present() []*table {
	return slices.DeleteFunc(slices.Clone(s.tables), func(t *table) bool { return t.dropped })
}

// planTables draws when outboxes come and go.
func (w *world) planTables() {
	d := w.dice(aboutSources, 1)
	if w.profile.comes {
		w.whenUp(d.pause(0, w.profile.length), func() bool {
			w.fault(tableComes)
			w.create("tenant_"+strconv.Itoa(w.profile.sources+1), d)
			return true
		})
	}
	if w.profile.goes {
		gone := w.server.tables[d.below(len(w.server.tables))]
		w.whenUp(d.pause(w.profile.length/4, w.profile.length), func() bool {
			if !w.mayDrop(gone) {
				return false
			}
			w.note("%s is dropped", gone.schema)
			w.fault(tableGoes)
			gone.dropped = true
			for _, r := range gone.rows {
				r.forgotten = r.missed && !w.server.isTerminal(r)
			}
			if w.profile.again {
				w.fault(tableAgain)
				w.whenUp(d.pause(0, one(d, 0, time.Second)), func() bool {
					w.create(gone.schema, d)
					return true
				})
			}
			return true
		})
	}
}

// whenUp runs f when so much fake time has passed, the server is up, and f says that it is done.
func (w *world) whenUp(d time.Duration, f func() bool) {
	w.moves++
	w.after(d, func() {
		w.moves--
		if w.failure == "" && (!w.server.up || !f()) && time.Since(w.began) < 2*w.profile.length {
			w.whenUp(look, f)
		}
	})
}

// mayDrop reports whether no transaction has the table, and the relay reads the stream: what is in that comes even so.
func (w *world) mayDrop(t *table) bool {
	for tx := range w.server.running {
		if slices.Contains(tx.tables, t) {
			return false
		}
	}
	for _, st := range w.server.db.statesOf(w.server.slotName) {
		if st.Phase != store.Stream {
			return false
		}
	}
	return w.server.db.states[w.server.slotName] != nil
}

// create makes an outbox, which has rows before the publication has it.
func (w *world) create(schema string, d *dice) {
	s := w.server
	t := newTable(uint32(16384+len(s.tables)), len(s.tables)+1)
	t.schema, t.came, t.hidden = schema, true, s.db.published
	s.tables = append(s.tables, t)
	w.note("%s is created, as outbox %d", schema, t.number)
	only := func(age time.Duration) {
		if !s.up || t.dropped {
			return
		}
		tx := s.writeTo(d, []*table{t})
		for _, r := range tx.rows {
			r.made = r.made.Add(-age)
		}
		s.finish(tx, d)
	}
	for range d.between(0, 2) {
		only(time.Hour) // older than what a round of the reconciler looks at
	}
	w.whenUp(d.pause(0, one(d, 0, time.Second)), func() bool {
		w.note("the publication has outbox %d", t.number)
		t.hidden = false
		for range d.between(0, 2) {
			w.whenUp(d.pause(0, time.Second), func() bool {
				only(0)
				return true
			})
		}
		return true
	})
}

// lockName is the name of the row's lane among those of all outboxes.
func (r *row) lockName() string { return strconv.Itoa(r.table.number) + "/" + r.laneName() }

// rows are those of all outboxes.
func (s *server) rows() iter.Seq[*row] {
	return func(yield func(*row) bool) {
		for _, t := range s.tables {
			for _, r := range t.rows {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// rowOf is the committed row with the payload, which no other one has in any outbox.
func (s *server) rowOf(payload []byte) *row {
	for _, t := range s.tables {
		if r := t.byPayload[string(payload)]; r != nil {
			return r
		}
	}
	return nil
}

// rowIn is the row with the id in the outbox that is the source.
func (s *server) rowIn(source int32, id []byte) *row {
	if t := s.tableOf(source); t != nil {
		return t.byID[string(id)]
	}
	return nil
}

// tableOf is the outbox that is the source.
func (s *server) tableOf(source int32) *table {
	if !s.w.several() {
		return s.table
	}
	for _, t := range s.tables {
		if s.db.sources[sourceOf{s.slotName, t.oid}] == source {
			return t
		}
	}
	return nil
}

// rowOfOID is the row with the id in the table.
func (s *server) rowOfOID(oid uint32, id string) *row {
	for _, t := range s.tables {
		if t.oid == oid {
			return t.byID[id]
		}
	}
	return nil
}

// spoolKey is the source under which the row's event is spooled: the slot's own, if it has several.
func (s *server) spoolKey(r *row) int32 {
	if s.w.several() && s.w.mutant != noSource {
		return s.db.sources[sourceOf{s.slotName, 0}]
	}
	return s.keyOf(r).source
}

// askFor asks for something that concerns events of the outbox, which may have no number yet. Called with mu held.
func (w *world) askFor(t *table, kind string, f store.Filter) {
	switch kind {
	case store.RequestReplay, store.RequestDiscard, store.RequestRetry:
		if w.several() {
			f.Source = w.server.db.sources[sourceOf{w.server.slotName, t.oid}]
			if f.Source == 0 {
				return
			}
		}
	default:
		f = store.Filter{All: f.All}
	}
	w.ask(kind, f)
}

// name is the row's id, behind the number of its outbox if there are several.
func (r *row) name() string {
	if r.table.schema == "public" {
		return r.id
	}
	return strconv.Itoa(r.table.number) + ":" + r.id
}

// table is the one that the next row is of.
func (tx *transaction) table(d *dice) *table {
	if len(tx.tables) == 1 {
		return tx.tables[0]
	}
	return one(d, tx.tables...)
}
