package simulator

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// J1, J5 and J8 by the kind of broker: what may come twice, what a journal row says, and how long one permit lasts.

// stint bounds how long a request may go on to begin others: driver's promises. The engine asks before each request
// whether it may; a driver that makes several of one asks again after so long.
func (k *brokerKind) stint() time.Duration {
	switch k.name {
	case Conditional:
		return time.Second // conditional's endPatience
	case Confirm:
		return 60 * time.Millisecond // the drivers' stint, and what one message takes
	}
	return 5 * time.Millisecond
}

// late reports that a batch that was first sent in that take-over is written when its sender's successor has looked
// already, or, where there is nothing to look at, when there is one, be it a later term of the same process.
func (w *world) late(serial int, part *clusterPartition) bool {
	switch w.profile.kind.name {
	case Conditional:
		return serial < w.serials && w.turns[serial-1] != w.turns[w.serials-1]
	case Confirm:
		return serial < w.heir
	}
	return part.readBy > serial
}

// judgeRepeated fails if the event appears once more and should not (J1). Kafka: no one counted it as possible.
// Conditional: the stream's end, or what stands behind it, tells that it is there. Confirm: it was confirmed, or it was
// sent again more often than connections, processes or turns ended with it unconfirmed and unrecorded.
func (w *world) judgeRepeated(p *process, r *row, late bool) {
	switch w.profile.kind.name {
	case Conditional:
		if !w.unreadable(r) {
			w.violate("p%d publishes %s once more, and the stream had it", p.number, r.name())
		}
	case Confirm:
		switch {
		case late: // it was on its way already
		case r.left > 0:
			r.left--
		case r.unheard > 0:
			r.unheard--
			if p.repeated++; uint64(p.repeated) > p.witness.PossibleDuplicates() {
				w.violate("p%d has sent %d events again, and counts %d of them", p.number, p.repeated,
					p.witness.PossibleDuplicates())
			}
		default:
			w.violate("p%d publishes %s once more, and it was confirmed, or recorded", p.number, r.name())
		}
	default:
		if !late && !r.excused && !w.unreadable(r) {
			w.violate("p%d publishes %s once more, and nobody counted it as possible", p.number, r.name())
		}
	}
}

// unheard lets the event be sent once more: its sender does not know what became of the message that it sent in that
// take-over. One of before the present term is late when it comes. Called with mu held.
func (w *world) unheard(r *row, serial int) {
	if r != nil && serial >= w.heir {
		r.unheard++
		w.counts.Repeatable++
	}
}

// passOn leaves to the process that takes the slot over what the one before has sent, or itself in a term that ends
// now: where nothing can be read back it may send again what is not recorded. Called with mu held.
func (w *world) passOn(p *process) {
	n := len(w.turns)
	own := n > 1 && w.turns[n-1] == w.turns[n-2]
	if w.profile.kind.name != Confirm || own && !p.unsure {
		return
	}
	w.heir = w.serials
	for _, t := range w.cluster.topics {
		for _, part := range t.partitions {
			w.leave(part)
		}
	}
	for r := range w.server.rows() {
		if r.left = 0; own { // else what is on its way still is late when it comes
			r.left = r.unheard
		}
		r.unheard = 0
		// One that is parked and journaled was sent by a process that had been replaced and did not know it yet, and who
		// took over had parked it: see "Lease and takeover" in docs/design.md.
		if parked := w.server.db.parked[w.server.keyOf(r)] != nil; r.appeared > 0 && (parked || !w.server.isJournaled(r)) {
			r.left++
			w.counts.Repeatable++
		}
	}
}

// confirmed is the event that a journal row without an offset is about, if its topic has it in that lane. One without a
// key may be in any.
func (w *world) confirmed(t *clusterTopic, p store.Published) (*row, bool) {
	r := w.server.rowIn(p.Source, p.ID)
	if r == nil || p.Offset != -1 {
		return nil, false
	}
	for n, part := range t.partitions {
		for i := range part.log {
			if part.log[i].row == r && (r.key == "" || int32(n) == p.Partition) {
				return r, true
			}
		}
	}
	return nil, false
}

// receive puts a message where no one reads it back. Called with mu held.
func (c *cluster) receive(p *process, serial int, part *clusterPartition, m message, copyOf *row) {
	m.at, m.source = time.Now(), "ours"
	part.log = append(part.log, m)
	c.w.note("%s of p%d is in %s", m.id, p.number, m.topic)
	switch {
	case copyOf != nil:
		copyOf.copied = true
		c.w.counts.Copies++
	case m.row != nil:
		c.w.counts.Records++
		p.appended++
		late := c.w.late(serial, part)
		c.w.judgeAppended(p, serial, part, m.row)
		if late {
			m.row.left++ // the slot's holder cannot know of it
		}
	}
	if p.dead {
		c.w.counts.LateAppends++
	}
}
