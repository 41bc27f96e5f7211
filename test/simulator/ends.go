package simulator

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
)

// A server that cannot go on ends the stream with the reason behind all that it has sent, and no one may have read that
// yet: the slot is free at once, and a standby may take it before this relay knows. This file has the ends of that
// kind, what causes them until a person repairs it, and who must have said so by then.

// startPause is the duration of two calls of a slow start: together longer than a standby needs to see that the slot is
// free.
const startPause = 300 * time.Millisecond

// reasonPatience is how much fake time a relay may take, when all other trouble has ended, to halt with the reason why
// it cannot go on: two looks for drift (5 s here), or the few sessions, with up to 15 s between two of them, that it
// takes to learn why they end.
const reasonPatience = time.Minute

// breakage ends each stream that reaches it.
type breakage struct {
	code string       // of the halt that says so
	at   time.Time    // since when
	tx   *transaction // that cannot be read; nil: the publication is gone
	said bool         // someone has said why
}

// ends draws the troubles of this file.
func (p *profile) ends(d *dice) {
	if d.chance(0.06) {
		p.unread = one(d, 0.3, 0.8)
	}
	if !d.chance(0.04) {
		return
	}
	p.drift, p.longTransaction, p.deletes = false, false, false
	p.dropped = d.chance(0.7)
	p.unreadable = !p.dropped
	p.standby = p.standby || d.chance(0.6)
	p.slowStarts = d.chance(0.6)
	p.broken = d.pause(50*time.Millisecond, 4*time.Second)
	if d.chance(0.3) { // long enough that everybody must have said why
		p.broken = p.length + reasonPatience + d.pause(time.Second, 5*time.Second)
	}
}

// slowStart is how much longer the call takes than others, at any time.
func (w *world) slowStart(call string) time.Duration {
	if w.profile.slowStarts && (call == "parked lanes" || call == "tails") {
		w.fault(startSlow)
		return startPause
	}
	return 0
}

// planBreak draws when something breaks that ends each stream, and when a person repairs it.
func (w *world) planBreak(d *dice) {
	if !w.profile.dropped && !w.profile.unreadable {
		return
	}
	w.after(d.pause(0, w.profile.length), func() {
		switch {
		case w.profile.unreadable:
			w.broken = &breakage{code: relay.HaltUnreadable} // the next transaction: see refuse
		case !w.server.db.published:
			return // not made yet
		default:
			w.note("the publication is dropped")
			w.fault(publicationDropped)
			w.server.db.published = false
			w.broken = &breakage{code: relay.HaltPublication, at: time.Now()}
		}
		w.after(w.profile.broken, w.mend)
	})
}

// mend repairs the breakage as a person does. Called with mu held.
func (w *world) mend() {
	w.judgeReasons()
	if tx := w.broken.tx; tx != nil {
		w.note("the transaction at %v can be read again", tx.commit)
		tx.refused = nil
	} else if w.profile.dropped {
		w.note("the publication is made again; the slot is older than it, or is none")
		w.server.db.published = true
	}
	w.broken, w.mendedAt = nil, time.Now()
	w.server.tell()
}

// judgeReasons fails if no process says why it cannot go on, though they have had the time (J13). Called with mu held.
func (w *world) judgeReasons() {
	b, slot := w.broken, w.server.slots[w.server.slotName]
	since := b.at
	if w.calmAt.After(since) {
		since = w.calmAt
	}
	switch {
	case !w.calm || b.at.IsZero() || time.Since(since) < reasonPatience || slot == nil || slot.lost:
		return
	case b.tx != nil && slot.confirmed > b.tx.commit: // a new slot
		return
	case b.tx == nil && w.server.db.published: // made by the relay, which had no slot
		return
	}
	w.counts.Reasons++
	if !b.said {
		w.violate("nobody has said why streams end, %v after the end of all other trouble: want a halt with the code %s",
			time.Since(since), b.code)
	}
}

// listen takes note of the halts that processes say, and of errors that name the reason. Called without mu: a status
// asks the fakes.
func (w *world) listen() {
	w.mu.Lock()
	b, processes := w.broken, w.processes
	w.mu.Unlock()
	if b == nil || b.said {
		return
	}
	for _, p := range processes {
		st := p.relay.Status()
		if st.Halt != nil && st.Halt.Code == b.code ||
			!st.Ready && strings.Contains(strings.Join(st.Reasons, " "), unreadable) {
			w.mu.Lock()
			b.said = true
			w.mu.Unlock()
		}
	}
}

// unreadable is a server's error about a row whose text is too large.
const unreadable = "invalid memory alloc request size 1258291203"

// refuse decides whether the server can decode what was just committed. Called with mu held.
func (s *server) refuse(tx *transaction) {
	b := s.w.broken
	switch {
	case len(tx.rows)+tx.foreign == 0:
	case s.w.profile.dropped && !s.db.published:
		tx.refused = &replication.PublicationMissingError{Publication: "cdc_relay", Said: "publication does not exist"}
	case s.w.profile.unreadable && b != nil && b.tx == nil:
		b.tx, b.at = tx, time.Now()
		s.w.fault(rowUnreadable)
		tx.refused = fmt.Errorf("stream: %w", &pgconn.PgError{Code: "XX000", Message: unreadable})
	}
	if tx.refused == nil {
		return
	}
	for _, slot := range s.slots {
		if slot.holder != nil {
			slot.holder.dieAt(len(s.wal.items) - 1)
		}
	}
}

// drawEnd decides, when the stream begins, how it may end by an error of the server. Called with mu held.
func (s *stream) drawEnd() {
	w := s.w
	for i, it := range w.server.wal.items[s.next:] {
		if it.tx != nil && it.tx.refused != nil {
			s.dieAt(s.next + i)
			break
		}
	}
	d := w.dice(aboutEnds, uint64(s.grant.PID))
	if d.chance(w.profile.unread) {
		upTo := s.next + one(d, 0, 0, d.below(4))
		w.duringTrouble(d.pause(0, one(d, 0, 20*time.Millisecond, 500*time.Millisecond)), func() {
			s.die(upTo, one[error](d, io.ErrUnexpectedEOF, &pgconn.PgError{Code: "XX000", Message: "unrecognized node type"},
				&pgconn.PgError{Code: "53200", Message: "out of memory"}))
		})
	}
}

// dieAt lets the stream die when the server comes to the item, which it does while the relay reads or does not. Called
// with mu held.
func (s *stream) dieAt(item int) {
	d := s.w.dice(aboutEnds, uint64(s.grant.PID), uint64(item))
	s.w.after(d.pause(0, one(d, time.Millisecond, 20*time.Millisecond, 300*time.Millisecond)), func() {
		if tx := s.w.server.wal.items[item].tx; tx.refused != nil {
			s.die(item, tx.refused)
		}
	})
}

// die ends the stream on the server's side: the slot is free, and the reason stands behind so many items of the WAL.
// Called with mu held.
func (s *stream) die(upTo int, said error) {
	if s.why != nil || s.said != nil {
		return
	}
	if s.d.chance(0.5) {
		s.arrive()
	}
	s.upTo, s.said, s.died = max(upTo, s.next), said, time.Now()
	s.p.leftAlone = s.died
	if s.slot.holder == s {
		s.slot.holder = nil
	}
	s.w.counts.StreamsDied++
	if s.received == s.grant.Confirmed {
		s.w.counts.DiedUnread++
	}
	s.w.note("the server ends the stream of p%d: %v", s.p.number, said)
	s.w.server.tell()
}

// stuck reports that the server has come to where it ends the stream, or is about to.
func (s *stream) stuck() bool {
	items := s.w.server.wal.items
	switch {
	case s.said != nil:
		return s.next >= min(s.upTo, len(items))
	case s.next < len(items) && items[s.next].tx != nil:
		return items[s.next].tx.refused != nil
	}
	return false
}

// brokenPipe reports that the server's end shows by a status that cannot be sent; behind some proxies it does not show.
func (s *stream) brokenPipe() bool {
	return s.said != nil && s.grant.PID%2 == 0 &&
		time.Since(s.died) > time.Duration(s.w.profile.config.Postgres.StatusInterval)
}

// endOthers ends the connections of processes of older epochs, as a take-over does. Harsher than Postgres: one may have
// made a new connection since, which tells it nothing. Called with mu held.
func (t *tables) endOthers() {
	for _, p := range t.w.processes {
		if o := p.tables; o != nil && o != t && o.epoch > 0 &&
			t.w.dice(aboutEnds, uint64(p.number), uint64(t.w.serials)).chance(0.5) {
			o.ended = true
		}
	}
}
