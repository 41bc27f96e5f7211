package simulator

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// table is an outbox table.
type table struct {
	oid       uint32
	number    int    // of the tables so far, from 1
	schema    string // of its name
	came      bool   // during the run
	hidden    bool   // the publication does not have it, though there is one
	dropped   bool
	rows      []*row // committed and visible ones, and those that were; by seq
	byID      map[string]*row
	byPayload map[string]*row
	lanes     map[string]*lane
	lastSeq   int
}

// row is one row of the outbox, with what the judge knows of its event.
type row struct {
	table                               *table
	seq                                 int
	id, kind, key, payload, headers     string
	topic                               string
	committed, visible, deleted, marked bool
	streamed                            bool // sent by a stream at least once

	poison   poison
	refusals int  // of the event by itself
	needed   int  // refusals after which one that was refused is taken
	copied   bool // into the topic of dead letters

	lane       *lane     // nil until it is committed, and for a row without a key
	made       time.Time // created_at
	late       bool      // read in a catch-up after the stream had left rows out
	missed     bool      // it was committed while the publication did not have the table
	place      int       // in the lane
	appeared   int       // in its topic
	excused    bool      // it may appear once more: see cluster.append
	unrecorded *turn     // that appended it, while it is not journaled
	baselined  bool
	journaled  time.Time                               // at last
	sent       struct{ source, position, late []byte } // headers, at last; late nil: none
	lost       bool                                    // its topic has lost it, at least once
	vanished   bool                                    // with its topic
	givenUp    bool                                    // see giveUp
	forgotten  bool                                    // nor can it be published again: its row is gone

	// Where nothing can be read back; see judge_confirm.go.
	unheard  int      // messages of the present turn that it may be in, as far as their sender knows
	left     int      // so often may it be sent again because another process had the slot
	stumbles int      // in a row, of the endpoint
	recorder *process // that has journaled it last
}

type poison uint8

const (
	wholesome poison = iota
	permanent
	transient
	unmappable // it cannot become a message
)

// lane is the rows of one key of one topic in the order of their commits.
type lane struct {
	rows []*row
	done int // so many of the first have appeared, or are dead
}

func newTable(oid uint32, number int) *table {
	return &table{oid: oid, number: number, schema: "public", byID: map[string]*row{}, byPayload: map[string]*row{},
		lanes: map[string]*lane{}}
}

func (r *row) laneName() string { return r.topic + "/" + r.key }

// recorded is the key of the relay's tables.
type recorded struct {
	source int32
	id     string
}

// database is the relay's tables.
type database struct {
	sources   map[sourceOf]int32
	schemas   map[int32]string        // of several outboxes, by source
	states    map[string]*store.State // by stateKey; Epoch is in epochs
	epochs    map[string]int64
	journal   map[recorded]store.Published
	journaled map[recorded]time.Time // since when it is there in the journal
	parked    map[recorded]*parkedRow
	arrivals  int // parked rows so far
	dead      map[recorded]*deadRow
	deaths    int // dead letters so far
	catchUp   map[int32][]listed
	offsets   map[string]map[string]*topicOffsets // by slot and topic
	batches   []*journalBatch
	requests  []*request
	pauses    map[string]*store.Pause      // by slot
	breakers  map[string]*breakerState     // by slot
	audits    map[string]*store.AuditState // by stateKey
	spool     map[int32][]spooledRow       // by the source of the slot
	published bool                         // the publication exists
}

// listed is a row of the list of a catch-up.
type listed struct {
	number uint64
	row    *row
}

type sourceOf struct {
	slot string
	oid  uint32
}

type parkedRow struct {
	event    outbox.Event
	topic    string
	key      []byte
	attempts int
	late     bool
	due      time.Time // zero: it has none
	whenWell bool
	class    outbox.ErrorClass
	arrival  int
	tried    time.Time // parked, or refused last
	replay   int64     // request that it was a dead letter for; 0: it was none
}

type topicOffsets struct {
	next  map[int32]int64
	since time.Time
}

// journalBatch is a row of the table of batches, from which rows are marked and deleted.
type journalBatch struct {
	source   int32
	ids      []string
	lsn      outbox.LSN
	at       time.Time
	xid      uint32 // of the last transaction that began before it
	mirrored bool
	deleted  bool
}

func newDatabase() database {
	return database{
		sources: map[sourceOf]int32{}, schemas: map[int32]string{}, states: map[string]*store.State{},
		epochs:  map[string]int64{},
		journal: map[recorded]store.Published{}, journaled: map[recorded]time.Time{},
		parked: map[recorded]*parkedRow{}, dead: map[recorded]*deadRow{},
		catchUp: map[int32][]listed{}, offsets: map[string]map[string]*topicOffsets{}, audits: map[string]*store.AuditState{},
		pauses: map[string]*store.Pause{}, breakers: map[string]*breakerState{},
		spool: map[int32][]spooledRow{},
	}
}

// terminal reports whether the event is journaled, parked or dead.
func (db *database) terminal(at recorded) bool {
	_, journaled := db.journal[at]
	return journaled || db.parked[at] != nil || db.dead[at] != nil
}

func (p *parkedRow) isDue() bool { return !p.due.IsZero() && !p.due.After(clock()) }

// lane lists the lane's parked events in queue order; with a nil key those of the topic that are due.
func (db *database) lane(source int32, l store.Lane, mutant string) []*parkedRow {
	var rows []*parkedRow
	for at, p := range db.parked {
		if at.source != source || p.topic != l.Topic || (p.key == nil) != (l.Key == nil) || !bytes.Equal(p.key, l.Key) {
			continue
		}
		if l.Key != nil || p.isDue() {
			rows = append(rows, p)
		}
	}
	slices.SortFunc(rows, func(a, b *parkedRow) int {
		if mutant == queueByArrival {
			return cmp.Compare(a.arrival, b.arrival)
		}
		if c := a.event.Position.Compare(b.event.Position); c != 0 {
			return c
		}
		return cmp.Compare(a.arrival, b.arrival)
	})
	return rows
}

// clock is the time as Postgres keeps it.
func clock() time.Time { return time.Now().Truncate(time.Microsecond) }

func cloneEvent(e *outbox.Event) outbox.Event {
	c := *e
	for _, column := range []*[]byte{&c.ID, &c.AggregateType, &c.AggregateID, &c.EventType, &c.Payload, &c.Headers,
		&c.CreatedAt} {
		*column = bytes.Clone(*column)
	}
	c.Extra = nil
	return c
}
