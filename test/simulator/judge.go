package simulator

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/sink"
)

// The judge knows what was committed, and looks at everything that a relay does to the world: each of its functions is
// called, with mu held, at the moment when something happens. The invariants are numbered in doc.go.

// judgeSent finds the row that a record was made of, and compares them (J6).
func (w *world) judgeSent(p *process, rec *sink.Record) *row {
	r := w.server.rowOf(rec.Value)
	if r == nil {
		w.violate("p%d sends a record to %s that no committed row is: key %q, value %q", p.number, rec.Topic, string(rec.Key),
			string(rec.Value))
		return nil
	}
	id, _ := rec.Headers.Get("id")
	for name, of := range map[string]*[]byte{"x-outbox-source": &r.sent.source, "x-outbox-position": &r.sent.position,
		"x-outbox-late": &r.sent.late} {
		value, _ := rec.Headers.Get(name)
		*of = bytes.Clone(value)
	}
	if _, late := rec.Headers.Get("x-outbox-late"); late && !r.missed && !r.late {
		w.violate("p%d takes %s for missed, and the stream has it", p.number, r.name())
	}
	switch want := w.server.sourceOf(r.table); {
	case string(r.sent.source) != want && w.profile.kind.name != Confirm:
		w.violate("p%d sends %s as one of the source %s; it is of %s", p.number, r.name(), r.sent.source, want)
	case !r.committed:
		w.violate("p%d sends %s, which is not committed", p.number, r.name())
	case rec.Topic != r.topic || (rec.Key == nil) != (r.key == "") || string(rec.Key) != r.key || string(id) != r.id:
		w.violate("p%d sends %s to %s under the key %q with the id %q; it is of %s under the key %q", p.number, r.name(),
			rec.Topic, string(rec.Key), string(id), r.topic, r.key)
	}
	return r
}

// judgeAppended is called for each record that a topic gets: order (J2), duplicates (J1), the bound of what a crash may
// duplicate (J3). serial is that of the process's take-over when the batch was first sent.
func (w *world) judgeAppended(p *process, serial int, part *clusterPartition, r *row) {
	if r == nil {
		return
	}
	late := w.late(serial, part)
	if r.appeared > 0 {
		w.counts.Duplicates++
		w.judgeRepeated(p, r, late)
	}
	r.excused = r.excused || late
	r.appeared++
	if r.poison == unmappable || r.poison == permanent && r.refusals < r.needed {
		w.violate("%s is in its topic, and it was refused", r.name())
	}
	replay := w.server.replays(r)
	switch dead := w.server.isDead(r); {
	case late || r.excused:
	case replay != 0:
		w.judgeReplay(p, r, replay)
	case dead:
		w.violate("p%d publishes %s, which is a dead letter", p.number, r.name())
	default:
		w.judgeHold(p, r)
	}
	if replay == 0 {
		w.judgeOrder(p, r)
	}
	if r.unrecorded == nil && !r.givenUp && !w.server.isJournaled(r) {
		r.unrecorded = w.turns[serial-1]
		if late {
			r.unrecorded = &turn{}
		}
		r.unrecorded.unrecorded++
		if n, limit := r.unrecorded.unrecorded, w.profile.config.Limits.MaxUnrecorded; n > limit {
			w.violate("p%d has %d records in topics that are not journaled, more than %d", p.number, n, limit)
		}
	}
}

// turn is the time in which a process has the slot, or loses it and gets it back before another one had it.
type turn struct {
	unrecorded int // records appended in it that are not journaled
}

// leave assigns unreadable records of a partition to the crash that left them there: a relay that looks
// for them forgets them, and counts possible duplicates.
func (w *world) leave(part *clusterPartition) {
	part.excused = int64(len(part.log))
	for _, m := range part.log {
		if m.row != nil && m.row.unrecorded != nil {
			m.row.unrecorded.unrecorded--
			m.row.unrecorded = &turn{unrecorded: 1}
		}
	}
}

// turnOf is the turn of the process that takes the slot over now, and that takers has already.
func (w *world) turnOf(p *process) *turn {
	if n := len(w.turns); n > 0 && w.takers[n-1] == p {
		return w.turns[n-1]
	}
	return &turn{}
}

// unreadable reports that the row is among the records of a partition whose end could not be read back.
func (w *world) unreadable(r *row) bool {
	for _, part := range w.cluster.topics[r.topic].partitions {
		for _, m := range part.log[:part.excused] {
			if m.row == r {
				return true
			}
		}
	}
	return false
}

// judgeOrder fails if an event of the lane that was committed before this one has not appeared and is not dead.
func (w *world) judgeOrder(p *process, r *row) {
	la := r.lane
	if la == nil || r.place < la.done {
		return
	}
	for la.done < len(la.rows) && la.done < r.place && w.finished(la.rows[la.done]) {
		la.done++
	}
	for _, before := range la.rows[la.done:r.place] {
		if !w.finished(before) {
			w.violate("p%d publishes %s before %s, which was committed before it in %s", p.number, r.name(), before.name(),
				r.laneName())
			return
		}
	}
}

// judgeReplay fails if a dead letter is published before an earlier one of its lane that the same person asked for
// (J2), or has died again in the same replay (J11).
func (w *world) judgeReplay(p *process, r *row, request int64) {
	if r.lane == nil {
		return
	}
	for _, before := range r.lane.rows[:r.place] {
		at := w.server.keyOf(before)
		d := w.server.db.dead[at]
		switch {
		case before.appeared > 0:
		case w.server.replays(before) == request:
			w.violate("p%d replays %s before %s, which was committed before it in %s", p.number, r.name(), before.name(),
				r.laneName())
		case d != nil && d.replay == request && w.server.db.open(at, d) &&
			d.at.After(w.server.db.request(request).RequestedAt):
			w.violate("p%d replays %s behind %s, which died again in the same replay, in %s", p.number, r.name(), before.name(),
				r.laneName())
		}
	}
}

// judgeHold fails if an event is published though a person has to decide about a dead letter in front of it (J11).
func (w *world) judgeHold(p *process, r *row) {
	if w.profile.config.Retry.OnDead != config.OnDeadHold || r.lane == nil {
		return
	}
	for _, before := range r.lane.rows[:r.place] {
		at := w.server.keyOf(before)
		if d := w.server.db.dead[at]; d != nil && w.server.db.holds(at, d) {
			w.violate("p%d publishes %s, and nobody has decided about the dead letter %s in front of it", p.number, r.name(),
				before.name())
		}
	}
}

// finished reports that the row's event holds no one back any more. One that cannot become a message does so only if
// dead letters hold their lanes; nor does one that is read from the table because the stream has left rows out: it is
// marked as late, and may be.
func (w *world) finished(r *row) bool {
	return r.appeared > 0 || r.baselined || r.late || r.lost || r.vanished || w.server.isDead(r) ||
		r.poison == unmappable && w.profile.config.Retry.OnDead != config.OnDeadHold
}

// judgeConfirmed fails if the slot's position passes an event that is not terminal (J4).
func (w *world) judgeConfirmed(p *process, s *slot, at outbox.LSN) {
	items := w.server.wal.items
	for ; s.judged < len(items) && items[s.judged].from() < at; s.judged++ {
		tx := items[s.judged].tx
		if tx == nil {
			continue
		}
		for _, r := range tx.published() {
			if !w.server.isTerminal(r) && !w.server.isSpooled(r) {
				w.violate("p%d confirms %v, and %s, committed at %v, is neither journaled nor parked nor dead nor spooled",
					p.number, at, r.name(), tx.commit)
			}
		}
	}
}

// judgeJournaled fails if a journal row is not true (J5).
func (w *world) judgeJournaled(t *tables, p store.Published) {
	if w.unjudged {
		return
	}
	r := w.server.rowIn(t.of(p.Source), p.ID)
	if r == nil {
		w.violate("p%d journals %s, which no row is", t.p.number, string(p.ID))
		return
	}
	r.journaled, r.recorder = clock(), t.p
	if r.unrecorded != nil {
		r.unrecorded.unrecorded--
		r.unrecorded = nil
	}
	if p.Topic == "" {
		r.baselined = true
		return
	}
	at, there := w.recordAt(p)
	// lost since a process saw it that has lost the slot since
	if r.vanished && at == nil {
		if t.p.serial == w.serials { // it was acknowledged before; once more is a duplicate
			r.appeared = max(r.appeared, 1)
		}
		return
	}
	if !there || at != r && (at != nil || !r.lost || t.p.serial == w.serials) {
		w.violate("p%d journals %s at %s/%d offset %d, and it is not there", t.p.number, string(p.ID), p.Topic, p.Partition,
			p.Offset)
	}
}

// recordAt is the event whose record is at the place, nil for none of ours or one that was lost. False: there is no
// such place.
func (w *world) recordAt(p store.Published) (r *row, there bool) {
	topic := w.cluster.topics[p.Topic]
	if topic == nil || p.Partition < 0 || int(p.Partition) >= len(topic.partitions) {
		return nil, false
	}
	if w.profile.kind.name == Confirm {
		return w.confirmed(topic, p)
	}
	log := topic.partitions[p.Partition].log
	if p.Offset < 0 || p.Offset >= int64(len(log)) {
		return nil, false
	}
	if m := &log[p.Offset]; m.row == nil || m.row.topic == p.Topic {
		return m.row, true
	}
	return nil, false
}

// judgeOffset fails if a record of ours below the offset is not journaled (J5).
func (w *world) judgeOffset(t *tables, o store.Offset) {
	if w.unjudged {
		return
	}
	if w.profile.kind.name == Confirm {
		w.violate("p%d notes that %s/%d is journaled below %d, and it has no offsets", t.p.number, o.Topic, o.Partition,
			o.Next)
		return
	}
	part := w.cluster.topics[o.Topic].partitions[o.Partition]
	for i, m := range part.log[:o.Next] {
		// Of a stream a process knows of what arrives late, too, before it appends anything behind it.
		excused := m.row != nil && m.row.excused && w.profile.kind.name != Conditional
		if int64(i) >= part.excused && m.row != nil && slices.Contains(w.server.tables, m.row.table) && !excused &&
			m.row.topic == o.Topic && !w.server.isJournaled(m.row) {
			w.violate("p%d notes that %s/%d is journaled below %d, and %s at %d is not", t.p.number, o.Topic, o.Partition,
				o.Next, m.id, i)
			return
		}
	}
}

// unsettled says what is left to do; empty when every committed row has its outcome and all of it is confirmed.
func (w *world) unsettled() string {
	s := w.server
	slot := s.slots[s.slotName]
	switch {
	case !s.up:
		return "Postgres is away"
	case slot == nil || slot.lost:
		return "there is no slot"
	}
	for at, p := range s.db.parked {
		return fmt.Sprintf("%s is parked, %d attempts, due %v", at.id, p.attempts, p.due)
	}
	for r := range s.rows() {
		if !r.forgotten && !s.isTerminal(r) && !(r.deleted && !r.streamed && !r.visible) {
			return r.name() + " has no outcome"
		}
	}
	if s.pending(lastTurn) {
		return "a request is not done"
	}
	if w.moves > 0 {
		return "an outbox is about to come or go"
	}
	if w.comparing > 0 {
		return "somebody is about to ask for what topics have lost"
	}
	for _, rows := range s.db.spool {
		if len(rows) > 0 {
			return fmt.Sprintf("%d rows are spooled", len(rows))
		}
	}
	if r := w.unmarked(); r != nil {
		return r.name() + " is published and not marked"
	}
	if n := len(s.wal.items); n > 0 && slot.confirmed <= s.wal.items[n-1].from() {
		return fmt.Sprintf("confirmed is %v, and the last commit %v", slot.confirmed, s.wal.items[n-1].from())
	}
	return ""
}

// judgeEnd fails if a committed row is not in its topic, or dead, or both (J1, J5).
func (w *world) judgeEnd() {
	for r := range w.server.rows() {
		dead, journaled := w.server.isDead(r), w.server.isJournaled(r)
		switch {
		case r.baselined, r.forgotten:
		case r.vanished && (dead || journaled):
		case r.appeared == 0 && !dead:
			w.violate("%s is lost: committed, not in its topic, no dead letter", r.name())
		case dead && r.appeared > 0 && !r.excused && !w.unreadable(r):
			w.violate("%s is in its topic and dead", r.name())
		case !dead && !journaled:
			w.violate("%s is in its topic and not journaled", r.name())
		case r.unrecorded != nil && !dead && !r.excused:
			w.violate("%s is counted as not journaled", r.name())
		case journaled:
			place := w.server.db.journal[w.server.keyOf(r)]
			if at, _ := w.recordAt(place); at != r {
				w.violate("%s is journaled at %s/%d offset %d, and is not there", r.name(), place.Topic, place.Partition,
					place.Offset)
			}
		}
	}
}
