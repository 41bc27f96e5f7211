package recovery

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Sent is how far each lane was sent, by the records that a scan has found. The sink sends a lane's event only after
// the outcome of the one before it is known: it was acknowledged, or it is recorded as dead. So an event that is not
// recorded was sent if its lane has a later one; that the topic does not hold it any more (compaction, retention,
// deleted or consumed) changes nothing.
//
// It believes only records that were sent on the timeline of now, from places that the server's WAL has reached and has
// not confirmed: LSNs of another history say nothing about this one. Late events stand behind their lane's order.
type Sent struct {
	// From and UpTo bound the commit LSNs to believe. Below From nothing comes again.
	From, UpTo outbox.LSN

	lanes map[lane]reached
	ahead bool // a record was sent from beyond UpTo: the database is not what it was, and nothing is believed
}

type lane struct {
	source     int32
	topic, key string
}

func laneOf(l outbox.Lane) lane { return lane{l.Source, l.Topic, string(l.Key)} }

// reached is the last event of a lane that was found.
type reached struct {
	stream, table place
	partition     int32 // that it was found in
}

type place struct {
	position outbox.Position
	known    bool
}

// note takes in a record of ours that was sent on the present timeline. A nil Sent takes in none.
func (s *Sent) note(of outbox.Lane, rec *sink.TailRecord) {
	if s == nil || rec.Key == nil || rec.Headers[headerLate] != nil {
		return
	}
	position, ok := parsePosition(rec.Headers[headerPosition])
	if !ok {
		return
	}
	if !position.Table {
		s.ahead = s.ahead || outbox.LSN(position.Order) > s.UpTo
		if outbox.LSN(position.Order) < s.From {
			return
		}
	}
	if s.lanes == nil {
		s.lanes = make(map[lane]reached)
	}
	l := laneOf(of)
	r := s.lanes[l]
	best := &r.stream
	if position.Table {
		best = &r.table
	}
	if !best.known || best.position.Compare(position) < 0 {
		*best, r.partition = place{position, true}, rec.Partition
		s.lanes[l] = r
	}
}

// Empty reports whether nothing is known of any lane.
func (s *Sent) Empty() bool { return s == nil || s.ahead || len(s.lanes) == 0 }

// Passed reports whether a later event of the lane was sent, and the partition that holds it.
func (s *Sent) Passed(of outbox.Lane, position outbox.Position) (partition int32, passed bool) {
	if s.Empty() || of.Key == nil {
		return 0, false
	}
	r, found := s.lanes[laneOf(of)]
	if !found {
		return 0, false
	}
	best := r.stream
	if position.Table {
		best = r.table
		passed = best.known && best.position.Epoch == position.Epoch && position.Order < best.position.Order
	} else {
		position.Epoch = 0 // the header does not have it; LSNs of a timeline only grow
		passed = best.known && position.Compare(best.position) < 0
	}
	return r.partition, passed
}

// parsePosition reads the header x-outbox-position; see [outbox.Position.String]. A stream position's epoch stays 0.
func parsePosition(text []byte) (p outbox.Position, ok bool) {
	if rest, table := bytes.CutPrefix(text, []byte("table/")); table {
		epoch, row, found := strings.Cut(string(rest), "/")
		p.Table = true
		var failed, wrong error
		p.Epoch, failed = strconv.ParseInt(epoch, 10, 64)
		p.Order, wrong = strconv.ParseUint(row, 10, 64)
		return p, found && failed == nil && wrong == nil
	}
	at := bytes.LastIndexByte(text, '/')
	if at < 0 {
		return p, false
	}
	lsn, failed := outbox.ParseLSN(string(text[:at]))
	index, wrong := strconv.ParseUint(string(text[at+1:]), 10, 32)
	p.Order, p.Index = uint64(lsn), uint32(index)
	return p, failed == nil && wrong == nil
}
