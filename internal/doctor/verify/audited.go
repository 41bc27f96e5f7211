package verify

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Audited is the result of an audit.
type Audited struct {
	Rows       int // of the table
	Expected   int // of them, those that must be in a topic
	Records    int
	Missing    int // pending ones included
	Pending    int // missing, and the relay's tables do not call them published
	Lost       int // missing, though the journal has a place for them that the topic must still hold
	Duplicated int
	OutOfOrder int
	Different  int // value, key or topic
	Misplaced  int // in a topic, but not where the journal has them
	Parked     int
	Dead       int
	Unjudged   int // published without a known place, and in no topic
	Expired    int // in no topic, because it has removed them
	Others     int // records of no row

	Examples map[Finding][]string
	IDs      []string // of the first that are missing
}

const missingListed = 100

// Absence says why a journaled place has no record.
type Absence uint8

// The reasons.
const (
	Gone    Absence = iota // there is none: the topic should have it
	Removed                // the topic's retention or compaction has, or may have, removed it
	Unread                 // no one knows: that part of the topic could not be read
)

// kept is a row with what was seen of it.
type kept struct {
	id         string
	value, key part
	topic      uint32
	state      State
	place      place
	order      int64
	made       Made

	seen    int
	first   place
	late    bool   // the first appearance says so
	placed  bool   // it is where the journal has it
	sure    bool   // some record is the row's for certain
	unalike []seen // records whose rows were made at another time
}

// seen is a record of a topic.
type seen struct {
	value, key part
	at         place
	late       bool
	made       Made
}

type place struct {
	topic     uint32
	partition int32
	offset    int64
}

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.topic, q.topic), cmp.Compare(p.partition, q.partition), cmp.Compare(p.offset, q.offset))
}

// Finish compares. why is asked about journaled rows that are in no topic. tell is called from time to time with how
// much is done, in parts of 256.
func (a *Auditor) Finish(why func(Place) Absence, tell func(done int)) (Audited, error) {
	v := Audited{Examples: map[Finding][]string{}}
	for n := range bucketCount {
		tell(n)
		rows, err := a.keptRows(n)
		if err == nil {
			err = a.compareBucket(n, rows, &v)
		}
		if err != nil {
			return v, err
		}
		for _, r := range rows {
			if err := a.judgeRow(r, why, &v); err != nil {
				return v, err
			}
		}
	}
	return v, a.judgeOrder(&v)
}

// Lost hands out the ids of the lost rows, in the table's order. It may be called once, after Finish.
func (a *Auditor) Lost(each func(id string) error) error {
	return a.lost.each(func(entry []byte) error { return each(string(entry[8:])) })
}

func (v *Audited) example(kind Finding, format string, args ...any) {
	if len(v.Examples[kind]) < examplesKept {
		v.Examples[kind] = append(v.Examples[kind], fmt.Sprintf(format, args...))
	}
}

// readEntry fills b; false at the end.
func readEntry(r *bufio.Reader, b []byte) (bool, error) {
	_, err := io.ReadFull(r, b)
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read a temporary file: %w", err)
	}
	return true, nil
}

func (a *Auditor) keptRows(n int) (map[Digest]*kept, error) {
	reader, err := a.rows.read(n)
	if err != nil {
		return nil, err
	}
	rows := map[Digest]*kept{}
	var b [rowBytes]byte
	for {
		if more, err := readEntry(reader, b[:]); err != nil || !more {
			return rows, err
		}
		order := binary.BigEndian
		r := &kept{
			value: part(order.Uint64(b[16:])), key: part(order.Uint64(b[24:])), topic: order.Uint32(b[32:]), state: State(b[36]),
			place: place{order.Uint32(b[37:]), int32(order.Uint32(b[41:])), int64(order.Uint64(b[45:]))},
			order: int64(order.Uint64(b[53:])), made: Made(order.Uint32(b[61:])),
		}
		id := make([]byte, order.Uint32(b[65:]))
		if _, err := io.ReadFull(reader, id); err != nil {
			return nil, fmt.Errorf("read a temporary file: %w", err)
		}
		r.id = string(id)
		if before := rows[Digest(b[:16])]; before == nil || r.state == StatedPublished && before.state != StatedPublished {
			rows[Digest(b[:16])] = r
		}
	}
}

// compareBucket goes through the records of one bucket.
func (a *Auditor) compareBucket(n int, rows map[Digest]*kept, v *Audited) error {
	reader, err := a.records.read(n)
	if err != nil {
		return err
	}
	var b [recordBytes]byte
	for {
		if more, err := readEntry(reader, b[:]); err != nil || !more {
			return err
		}
		v.Records++
		r := rows[Digest(b[:16])]
		if r == nil {
			v.Others++
			continue
		}
		order := binary.BigEndian
		s := seen{
			value: part(order.Uint64(b[16:])), key: part(order.Uint64(b[24:])),
			at:   place{order.Uint32(b[32:]), int32(order.Uint32(b[36:])), int64(order.Uint64(b[40:]))},
			late: b[48] == 1, made: Made(order.Uint32(b[49:])),
		}
		if r.state == StatedPublished && s.at == r.place || !s.made.Another(r.made) {
			r.sure = true
			a.count(r, s, v)
		} else {
			r.unalike = append(r.unalike, s)
		}
	}
}

// settleUnalike decides about records that have the row's id and say that their rows were made at another time. Ids
// can be used again, say after TRUNCATE … RESTART IDENTITY, and then they are of former events. But the application
// may also have changed created_at since, so they are the row's if it is published and no other record is.
func (a *Auditor) settleUnalike(r *kept, v *Audited) {
	if r.sure || r.state == Pending {
		v.Others += len(r.unalike)
		return
	}
	for _, s := range r.unalike {
		a.count(r, s, v)
	}
}

// count takes in a record of the row.
func (a *Auditor) count(r *kept, s seen, v *Audited) {
	if r.seen++; r.seen > 1 {
		v.Duplicated++
		v.example(Duplicated, "id %q again at %v", r.id, a.named(s.at))
	}
	if r.seen == 1 || s.at.compare(r.first) < 0 {
		r.first, r.late = s.at, s.late
	}
	r.placed = r.placed || s.at == r.place
	for _, c := range []struct {
		kind  Finding
		wrong bool
	}{{WrongTopic, s.at.topic != r.topic}, {KeyDiffers, s.key != r.key}, {BytesDiffer, s.value != r.value}} {
		if c.wrong {
			v.Different++
			v.example(c.kind, "id %q at %v", r.id, a.named(s.at))
		}
	}
}

func (a *Auditor) named(p place) Place { return Place{a.names[p.topic], p.partition, p.offset} }

// judgeRow decides about one row when all its records were seen.
func (a *Auditor) judgeRow(r *kept, why func(Place) Absence, v *Audited) error {
	v.Rows++
	a.settleUnalike(r, v)
	named := a.named(r.place)
	switch {
	case r.state == StatedParked:
		v.Parked++
		return nil
	case r.state == StatedDead:
		v.Dead++
		return nil
	case r.seen > 0:
		v.Expected++
		if _, somewhere := named.Journaled(); r.state == StatedPublished && named.Topic != "" && !r.placed && !somewhere {
			v.Misplaced++
			v.example(WrongPlace, "id %q: the journal has it at %v", r.id, named)
		}
		return a.addOrder(r)
	case r.state == StatedPublished && named.Topic == "":
		v.Unjudged++
		return nil
	}
	absence := Gone
	if r.state == StatedPublished {
		if absence = why(named); absence == Removed {
			v.Expired++
			return nil
		}
	}
	v.Expected++
	v.Missing++
	v.example(Missing, "id %q of topic %s is in no topic", r.id, a.names[r.topic])
	if len(v.IDs) < missingListed {
		v.IDs = append(v.IDs, r.id)
	}
	switch {
	case r.state == Pending:
		v.Pending++
	case absence == Gone:
		v.Lost++
		return a.lost.add(append(binary.BigEndian.AppendUint64(nil, sortable(r.order)), r.id...))
	}
	return nil
}

// sortable makes a number whose bytes sort as it does.
func sortable(n int64) uint64 { return uint64(n) ^ 1<<63 }

// addOrder notes where a row with a key appeared first. The entry sorts by lane, partition and offset.
func (a *Auditor) addOrder(r *kept) error {
	if r.key == keyless || r.late || r.first.topic != r.topic {
		return nil
	}
	order := binary.BigEndian
	b := order.AppendUint32(make([]byte, 0, 64), r.topic)
	b = order.AppendUint64(b, uint64(r.key))
	b = order.AppendUint32(b, uint32(r.first.partition))
	b = order.AppendUint64(b, uint64(r.first.offset))
	b = order.AppendUint64(b, sortable(r.order))
	return a.order.add(append(b, r.id...))
}

const (
	laneBytes      = 4 + 8 + 4 // topic, key, partition
	laneOrderBytes = laneBytes + 8
)

// judgeOrder goes through the first appearances of each lane by offset.
func (a *Auditor) judgeOrder(v *Audited) error {
	var lane [laneBytes]byte
	latest, begun := uint64(0), false
	return a.order.each(func(e []byte) error {
		order := binary.BigEndian.Uint64(e[laneOrderBytes:])
		if !begun || lane != [laneBytes]byte(e) {
			begun, lane, latest = true, [laneBytes]byte(e), order
			return nil
		}
		if order < latest {
			v.OutOfOrder++
			at := place{binary.BigEndian.Uint32(e), int32(binary.BigEndian.Uint32(e[12:])),
				int64(binary.BigEndian.Uint64(e[laneBytes:]))}
			v.example(Reordered, "id %q at %v: it came after a later one of its key", e[laneOrderBytes+8:], a.named(at))
		}
		latest = max(latest, order)
		return nil
	})
}
