package verify

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"
)

// Digest is a fingerprint of bytes: the first half of their SHA-256. Null differs from empty.
type Digest [16]byte

// DigestOf makes the fingerprint; nil counts as null.
func DigestOf(b []byte) Digest {
	if b == nil {
		return Digest{0: 1}
	}
	sum := sha256.Sum256(b)
	return Digest(sum[:16])
}

// Fate is an event's outcome in the relay's tables.
type Fate uint8

// The fates.
const (
	Published Fate = iota
	Parked         // waits in the relay's table
	Dead           // a dead letter that was not replayed
)

// Committed is an event of the truth. Events of one lane are given to [Judge.Expect] in commit order.
type Committed struct {
	ID      string
	Topic   string
	Key     []byte // nil = without a key, so a lane of its own
	Value   Digest
	Headers Digest // of whatever the caller takes from the headers; the zero digest = not compared
	Fate    Fate
}

// Record is a record that a consumer saw. Records of one partition are given to [Judge.Saw] by rising offset.
type Record struct {
	ID        string // from the record's id header
	Topic     string
	Partition int32
	Offset    int64
	Key       []byte
	Value     Digest
	Headers   Digest // made as the truth's
	Late      bool   // the record says that it may be out of order: reconciled or replayed
	Made      Made   // when it says that its row was made; for an [Auditor]
}

// Place is where a record lies.
type Place struct {
	Topic     string
	Partition int32
	Offset    int64
}

// Somewhere is a place in a topic that is known by the time only at which the journal took the record up.
func Somewhere(topic string, journaled time.Time) Place {
	return Place{Topic: topic, Offset: -journaled.UnixMilli()}
}

// Journaled is that time, for such a place.
func (p Place) Journaled() (at time.Time, somewhere bool) {
	return time.UnixMilli(-p.Offset), p.Offset < 0
}

// String is "topic/partition@offset".
func (p Place) String() string {
	if at, somewhere := p.Journaled(); somewhere {
		return fmt.Sprintf("%s, about %s", p.Topic, at.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("%s/%d@%d", p.Topic, p.Partition, p.Offset)
}

// Judge takes the truth by Expect, then records by Saw, then journal rows by Journaled, and gives the verdict by
// Report. It belongs to one goroutine. It keeps about 200 bytes per committed event, and nothing per record except for
// duplicates; to audit a table that is too large for that, judge it range by range.
type Judge struct {
	partition func(topic string, key []byte) int32 // nil = not checked

	events map[Digest]*event // by the digest of the id
	lanes  map[Digest]*lane  // by the digest of topic and key
	topics map[string]string // one copy of each topic's name
	more   map[*event][]Place

	report Report
}

// event is one committed event. ordinals count from 1; 0 = none.
type event struct {
	id        string
	lane      *lane // nil = without a key
	topic     string
	value     Digest
	headers   Digest
	key       Digest
	offset    int64  // of the first appearance
	committed uint32 // ordinal in the lane by commit
	appeared  uint32 // ordinal in the lane by first appearance
	partition int32  // of the first appearance
	seen      uint32 // appearances
	fate      Fate
	journaled bool
}

// lane is the state of one (topic, key).
type lane struct {
	committed uint32 // events in the truth
	latest    uint32 // highest commit ordinal that appeared
	appeared  uint32 // events that appeared
	cursor    uint32 // appearance ordinal of the last record
	partition int32  // of the first record; -1 = none yet
}

// New makes a judge. partition says where a key belongs; nil leaves that unchecked. See [Murmur2].
func New(partition func(topic string, key []byte) int32) *Judge {
	return &Judge{
		partition: partition,
		events:    make(map[Digest]*event),
		lanes:     make(map[Digest]*lane),
		topics:    make(map[string]string),
		more:      make(map[*event][]Place),
	}
}

// Expect takes an event of the truth. An id that comes twice is an error of the caller's truth.
func (j *Judge) Expect(c Committed) error {
	id := DigestOf([]byte(c.ID))
	if _, twice := j.events[id]; twice {
		return fmt.Errorf("take the truth: the id %q is in it twice", c.ID)
	}
	e := &event{id: c.ID, topic: j.intern(c.Topic), value: c.Value, headers: c.Headers, key: DigestOf(c.Key), fate: c.Fate}
	if c.Key != nil {
		e.lane = j.laneOf(c.Topic, c.Key)
		e.lane.committed++
		e.committed = e.lane.committed
	}
	j.events[id] = e
	j.report.Expected++
	return nil
}

// Saw takes a record of a topic.
func (j *Judge) Saw(r Record) {
	j.report.Seen++
	place := Place{r.Topic, r.Partition, r.Offset}
	e, known := j.events[DigestOf([]byte(r.ID))]
	if !known {
		j.report.add(Unexpected, "id %q at %v is not in the truth", r.ID, place)
		return
	}
	e.seen++
	if e.seen == 1 {
		e.partition, e.offset = r.Partition, r.Offset
	} else {
		j.more[e] = append(j.more[e], place)
	}
	j.compare(e, r, place)
	if e.fate != Published {
		j.report.add(Contradicted, "id %q is at %v, but the relay's tables say %s", e.id, place, e.fate)
	}
	if e.lane == nil {
		if e.seen > 1 {
			j.report.add(Duplicated, "id %q again at %v", e.id, place)
		}
		return
	}
	j.checkPartition(e, r, place)
	if e.seen == 1 {
		j.firstAppearance(e, r, place)
	} else {
		j.repetition(e, place)
	}
}

// compare checks that the record is the event.
func (j *Judge) compare(e *event, r Record, place Place) {
	if r.Topic != e.topic {
		j.report.add(WrongTopic, "id %q at %v belongs to topic %s", e.id, place, e.topic)
	}
	if DigestOf(r.Key) != e.key {
		j.report.add(KeyDiffers, "id %q at %v has another key", e.id, place)
	}
	if r.Value != e.value {
		j.report.add(BytesDiffer, "id %q at %v has another value", e.id, place)
	}
	if e.headers != (Digest{}) && r.Headers != e.headers {
		j.report.add(HeadersDiffer, "id %q at %v has other headers", e.id, place)
	}
}

func (j *Judge) checkPartition(e *event, r Record, place Place) {
	if e.lane.partition < 0 {
		e.lane.partition = r.Partition
	} else if e.lane.partition != r.Partition {
		j.report.add(SplitKey, "id %q at %v: its key was on partition %d before", e.id, place, e.lane.partition)
	}
	if j.partition == nil {
		return
	}
	if want := j.partition(r.Topic, r.Key); r.Partition != want {
		j.report.add(WrongPartition, "id %q at %v belongs to partition %d", e.id, place, want)
	}
}

// firstAppearance checks the commit order, and that a rewind before it went all the way.
func (j *Judge) firstAppearance(e *event, r Record, place Place) {
	l := e.lane
	if !r.Late {
		if e.committed < l.latest {
			j.report.add(Reordered, "id %q at %v: event %d of its lane came after event %d", e.id, place, e.committed, l.latest)
		}
		l.latest = max(l.latest, e.committed)
	}
	if l.cursor != l.appeared {
		j.report.add(BrokenRewind, "id %q at %v: new, though the lane's rewind had come to record %d of %d only", e.id, place,
			l.cursor, l.appeared)
	}
	l.appeared++
	e.appeared = l.appeared
	l.cursor = l.appeared
}

// repetition checks that a duplicate goes back, or follows on the one before.
func (j *Judge) repetition(e *event, place Place) {
	l := e.lane
	j.report.add(Duplicated, "id %q again at %v", e.id, place)
	switch {
	case e.appeared <= l.cursor:
		j.report.Rewinds++
	case e.appeared > l.cursor+1:
		j.report.add(BrokenRewind, "id %q at %v: record %d of its lane again, but record %d was due", e.id, place, e.appeared,
			l.cursor+1)
	}
	l.cursor = e.appeared
}

// Journaled takes a row of the relay's journal. Once one was given, every event that was seen must have one.
func (j *Judge) Journaled(id string, at Place) {
	j.report.Journal++
	e, known := j.events[DigestOf([]byte(id))]
	if !known {
		j.report.add(WrongPlace, "the journal has id %q at %v, which is not in the truth", id, at)
		return
	}
	if e.journaled {
		j.report.add(WrongPlace, "the journal has id %q twice, again at %v", id, at)
	}
	e.journaled = true
	if e.seen > 0 && at == (Place{e.topic, e.partition, e.offset}) {
		return
	}
	for _, place := range j.more[e] {
		if place == at {
			return
		}
	}
	j.report.add(WrongPlace, "the journal has id %q at %v, where it is not", id, at)
}

// Report gives the verdict on what was taken so far.
func (j *Judge) Report() Report {
	report := j.report.clone()
	for _, e := range j.events {
		if e.seen == 0 && e.fate == Published {
			report.add(Missing, "id %q of topic %s is in no topic", e.id, e.topic)
		}
		if e.seen > 0 && j.report.Journal > 0 && !e.journaled {
			report.add(Unjournaled, "id %q is at %v, but not in the journal", e.id, Place{e.topic, e.partition, e.offset})
		}
		if l := e.lane; l != nil && e.seen > 0 && e.appeared == l.cursor && l.cursor != l.appeared {
			report.add(BrokenRewind, "id %q: its lane's rewind ended there, at record %d of %d", e.id, l.cursor, l.appeared)
		}
	}
	return report
}

func (j *Judge) laneOf(topic string, key []byte) *lane {
	name := binary.AppendUvarint(nil, uint64(len(topic)))
	digest := DigestOf(append(append(name, topic...), key...))
	l, known := j.lanes[digest]
	if !known {
		l = &lane{partition: -1}
		j.lanes[digest] = l
	}
	return l
}

func (j *Judge) intern(topic string) string {
	if known, ok := j.topics[topic]; ok {
		return known
	}
	j.topics[topic] = topic
	return topic
}

// String names the fate.
func (f Fate) String() string {
	switch f {
	case Parked:
		return "parked"
	case Dead:
		return "dead"
	}
	return "published"
}
