package simulator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// plan draws the application's transactions: when each begins, how long it takes, and what it writes.
func (s *server) plan() {
	w := s.w
	for i := range w.profile.transactions {
		d := w.dice(aboutWriter, uint64(s.table.number), uint64(i))
		if i < w.profile.older {
			s.finish(s.write(d), d)
			continue
		}
		at := d.pause(0, w.profile.length)
		w.after(at, func() { s.begin(d) })
	}
}

// begin writes a transaction's rows, some at once and some later, and ends it.
func (s *server) begin(d *dice) {
	if !s.up {
		return
	}
	tx := s.write(d)
	long := d.pause(0, one(d, 0, 5*time.Millisecond, 200*time.Millisecond))
	s.w.after(long/2, func() {
		if !tx.over && tx.commit == 0 {
			s.fill(tx, d)
		}
	})
	s.w.after(long, func() { s.finish(tx, d) })
}

// write begins a transaction with its first rows.
func (s *server) write(d *dice) *transaction { return s.writeTo(d, s.written(d)) }

func (s *server) writeTo(d *dice, tables []*table) *transaction {
	s.lastXID++
	tx := &transaction{xid: s.lastXID, shuffled: d.chance(0.5), tables: tables}
	s.running[tx] = struct{}{}
	if s.w.real != nil {
		s.w.real.begins(tx)
	}
	if d.chance(0.2) {
		tx.foreign = d.between(1, 3)
		s.wal.end += walRow
	}
	if d.chance(0.05) {
		tx.tokens = append(tx.tokens, [3]string{one(d, "cdc-relay", "other"), "H/1/0"})
	}
	if d.chance(0.1) {
		s.wal.items = append(s.wal.items, item{lsn: s.wal.end}) // a message that is part of no transaction
		s.wal.end += walMessage
	}
	s.fill(tx, d)
	return tx
}

// fill adds rows. A lane belongs to one running transaction at a time, as with a lock on the aggregate: so seq and
// commit have one order in each lane, and there is one right order for whatever the relay reads from the table and the
// stream.
func (s *server) fill(tx *transaction, d *dice) {
	if d.chance(0.05) {
		return
	}
	for range d.between(1, s.w.profile.largest) {
		if len(tx.tables) == 0 {
			return
		}
		r := s.newRow(d, tx.table(d))
		if r.key != "" {
			name := r.lockName()
			mine := false
			for _, l := range tx.lanes {
				mine = mine || l == name
			}
			if _, taken := s.locked[name]; taken && !mine {
				r.table.lastSeq--
				continue
			}
			if !mine {
				s.locked[name] = struct{}{}
				tx.lanes = append(tx.lanes, name)
			}
		}
		s.wal.end += walRow
		tx.rows = append(tx.rows, r)
	}
}

// never is how often an event is refused that never is taken.
const never = 1 << 30

// filler is a member of so many bytes, as jsonb gives it out.
func filler(bytes int) string {
	if bytes == 0 {
		return ""
	}
	return `, "filler": "` + strings.Repeat(" ", bytes) + `"`
}

func (s *server) newRow(d *dice, t *table) *row {
	p := &s.w.profile
	t.lastSeq++
	kind := d.below(p.topics)
	r := &row{
		table: t, made: clock(), seq: t.lastSeq, id: strconv.Itoa(t.lastSeq), kind: kindName(kind), topic: topicName(kind),
		payload: fmt.Sprintf(`{"n": %d, "t": %d%s}`, t.lastSeq, t.number, filler(p.filler)),
	}
	if !d.chance(p.keyless) {
		r.key = "k" + strconv.Itoa(d.below(p.keys))
	}
	if d.chance(0.1) {
		r.headers = `{"a": "b"}`
	}
	switch {
	case d.chance(p.permanent):
		r.poison, r.needed = permanent, one(d, 1, 2, 3, never)
	case d.chance(p.transient):
		r.poison, r.needed = transient, d.between(1, 5)
	case d.chance(p.unmappable):
		r.poison, r.headers = unmappable, `["no object"]`
	}
	return r
}

// finish ends a transaction.
func (s *server) finish(tx *transaction, d *dice) {
	if tx.over || tx.commit != 0 || !s.up {
		return
	}
	if d.chance(s.w.profile.aborts) {
		s.w.fault(aborted)
		s.end(tx)
		return
	}
	s.commit(tx)
	if d.chance(s.w.profile.slowCommit) && !s.w.calm {
		s.w.fault(shownLate)
		s.w.after(d.pause(0, 300*time.Millisecond), func() { s.show(tx) })
	} else {
		s.show(tx)
	}
	if p := &s.w.profile; p.deletes || p.deletesSpooled {
		for _, r := range tx.rows {
			if d.chance(0.5) {
				s.w.after(d.pause(0, time.Second), func() { s.remove(r) })
			}
		}
	}
	if s.w.profile.foreign && len(tx.rows) > 0 && d.chance(0.5) {
		s.w.cluster.appendForeign(tx.rows[0].id, d)
	}
}

// remove deletes a row, as an application does that needs it no more. Not before the end of the catch-up: of a row that
// is gone when the table is read no one can know where in the order it belongs, or that it was there.
func (s *server) remove(r *row) {
	if !slices.Contains(s.tables, r.table) || r.table.dropped {
		return // that table was made again, and may have another row with the id
	}
	if s.w.profile.deletesSpooled && !s.isSpooled(r) {
		return
	}
	if st := s.db.states[s.slotName]; st != nil && st.Phase == store.Stream && r.visible && !r.deleted && !r.missed {
		r.deleted = true
		if s.w.real != nil {
			s.w.real.deletes(r)
		}
		s.w.fault(appDeletes)
		s.w.note("the application deletes %s", r.name())
	}
}

// commit writes the commit record: the stream has the transaction from now on.
func (s *server) commit(tx *transaction) {
	tx.commit = s.wal.end
	s.wal.end += walCommit
	tx.end = s.wal.end
	tx.at = time.Now()
	// The server decodes by the publication as it was then.
	hidden := !s.db.published && s.slots[s.slotName] != nil && !s.w.profile.dropped
	s.wal.items = append(s.wal.items, item{tx: tx})
	s.refuse(tx)
	s.undo = s.undo[:0]
	for _, r := range tx.rows {
		t := r.table
		r.committed, r.missed = true, hidden || t.hidden || t.came && s.slots[s.slotName] == nil
		s.w.counts.Rows++
		t.rows = append(t.rows, r)
		t.byID[r.id], t.byPayload[r.payload] = r, r
		if r.key == "" || r.missed {
			continue // of no lane
		}
		la := t.lanes[r.laneName()]
		if la == nil {
			la = &lane{}
			t.lanes[r.laneName()] = la
		}
		r.lane, r.place = la, len(la.rows)
		la.rows = append(la.rows, r)
	}
	if len(tx.rows) > 0 {
		s.w.note("commit at %v of %s", tx.commit, ids(tx.rows))
	}
	s.tell()
}

// show makes a committed transaction visible.
func (s *server) show(tx *transaction) {
	for _, r := range tx.rows {
		r.visible = true
	}
	s.end(tx)
}

// end lets a transaction's locks go.
func (s *server) end(tx *transaction) {
	if tx.over {
		return
	}
	tx.over = true
	if s.w.real != nil {
		s.w.real.ends(tx)
	}
	delete(s.running, tx)
	for _, l := range tx.lanes {
		delete(s.locked, l)
	}
	s.tell()
}

// commitToken commits a message of the relay's.
func (s *server) commitToken(prefix, content string) {
	s.lastXID++
	tx := &transaction{xid: s.lastXID, tokens: [][3]string{{prefix, content}}, over: true, at: time.Now()}
	s.wal.end += walMessage
	tx.commit = s.wal.end
	s.wal.end += walCommit
	tx.end = s.wal.end
	s.wal.items = append(s.wal.items, item{tx: tx})
	s.tell()
}

// remake replaces the outbox by a new table that uses the same ids, which another slot is for.
func (s *server) remake() {
	s.w.note("the outbox is made anew")
	s.tables = []*table{newTable(s.table.oid+100, s.table.number+1)}
	s.table = s.tables[0]
	if s.w.real != nil {
		s.w.real.remakes(s.table)
	}
	s.slotName += "_2"
	s.wal.items = append([]item(nil), s.wal.items...)
}

func (s *server) keyOf(r *row) recorded {
	if s.w.mutant == noSource {
		return recorded{0, r.id}
	}
	for of, source := range s.db.sources {
		if of.oid == r.table.oid {
			return recorded{source, r.id}
		}
	}
	return recorded{-1, r.id}
}

// sourceOf is the value of the header x-outbox-source for the table's events.
func (s *server) sourceOf(t *table) string {
	for of, source := range s.db.sources {
		if of.oid == t.oid {
			return fmt.Sprintf("%s/1/%d", systemID, source)
		}
	}
	return ""
}

func (s *server) isTerminal(r *row) bool { return s.db.terminal(s.keyOf(r)) }

// isDead reports that the event is a dead letter that was not published after all.
func (s *server) isDead(r *row) bool {
	d := s.db.dead[s.keyOf(r)]
	return d != nil && !d.replayed
}

// replays is the request for which the event, a dead letter, is published after all; 0: none.
func (s *server) replays(r *row) int64 {
	if p := s.db.parked[s.keyOf(r)]; p != nil {
		return p.replay
	}
	return 0
}

func (s *server) isJournaled(r *row) bool {
	_, yes := s.db.journal[s.keyOf(r)]
	return yes
}
