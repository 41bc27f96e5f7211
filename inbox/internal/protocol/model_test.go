package protocol

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
)

// A rule that a run leaves out, to see the judge find it.
type broken string

const (
	nothing       broken = ""
	lanesFirst    broken = "parked lanes are read before the offsets"
	parkedIsDone  broken = "a conflict with a parked row counts as done"
	kafkaAlone    broken = "a start trusts Kafka's offset alone"
	anyOfTheLane  broken = "a retry takes any event of the lane"
	blindRetry    broken = "a retry does not look at the row's state"
	anyServer     broken = "a process goes on with a database that was set back"
	passesUndone  broken = "the offset passes events that are not decided"
	noRowForAPark broken = "parking writes no row for the event's id"
	blindToFacts  broken = "a transaction does not look for what was committed or read last"
	oldOffsets    broken = "offsets are written whatever the database has"
	endsInSQL     broken = "a handler can end its transaction"
)

type state int

const (
	done state = iota + 1
	parked
	dead
)

const (
	keys      = 3
	poisonous = 4 // one event in so many fails permanently
	attempts  = 2 // then an event is dead
)

// record is one message of the only partition; an id can stand in it more than once.
type record struct{ id, key int }

// database is all that a transaction changes, effects included: setting it back is taking an older copy.
type database struct {
	server  int // another one after each set-back: what a session can tell a server by
	rows    map[int]state
	lanes   [keys][]int // parked events by key, in the order of their rows
	tries   map[int]int
	offset  int
	effects []int
}

func (d *database) copy() *database {
	c := *d
	c.rows, c.tries, c.effects = maps.Clone(d.rows), maps.Clone(d.tries), slices.Clone(d.effects)
	for k := range c.lanes {
		c.lanes[k] = slices.Clone(d.lanes[k])
	}
	return &c
}

// world is everything outside the processes.
type world struct {
	rng    *rand.Rand
	broken broken
	log    []record
	bad    map[int]bool // ids that fail permanently
	ends   map[int]bool // ids whose handler would end its transaction
	db     *database
	older  []*database
	kafka  int // the group's offset: any member may set it to anything, also backwards
	calm   bool
}

func newWorld(seed uint64, b broken) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 19)), broken: b, bad: map[int]bool{},
		ends: map[int]bool{}}
	w.db = &database{rows: map[int]state{}, tries: map[int]int{}}
	for id := range 12 {
		w.log = append(w.log, record{id, w.rng.IntN(keys)})
		w.bad[id] = w.rng.IntN(poisonous) == 0
		w.ends[id] = w.bad[id] && w.rng.IntN(2) == 0
		if w.rng.IntN(5) == 0 { // the relay was killed between sending and recording
			w.log = append(w.log, w.log[w.rng.IntN(len(w.log))])
		}
	}
	return w
}

// apply runs a transaction, whose answer may be lost.
func (w *world) apply(body func(*database) bool) (ok, known bool) {
	after := w.db.copy()
	if !body(after) {
		return false, true
	}
	fate := 0
	if !w.calm {
		fate = w.rng.IntN(12)
	}
	switch fate {
	case 1: // rolled back by the server, and no one is told
		return false, false
	case 2: // committed, and no one is told
		w.db = after
		return false, false
	}
	w.db = after
	return true, true
}

// judge checks the promises.
func (w *world) judge() error {
	count := map[int]int{}
	for _, id := range w.db.effects {
		count[id]++
	}
	first := map[int]int{}
	key := map[int]int{}
	for at, r := range w.log {
		if _, seen := first[r.id]; !seen {
			first[r.id], key[r.id] = at, r.key
		}
	}
	for id := range first {
		switch s := w.db.rows[id]; {
		case s == done && count[id] != 1, s == dead && count[id] != 0:
			return fmt.Errorf("event %d is in state %d and has had %d effects", id, s, count[id])
		case s != done && s != dead:
			return fmt.Errorf("event %d is lost: state %d, %d effects", id, s, count[id])
		case s == dead && !w.bad[id]:
			return fmt.Errorf("event %d is dead, and was good", id)
		}
	}
	last := map[int]int{}
	for _, id := range w.db.effects {
		k := key[id]
		if at, seen := last[k]; seen && at > first[id] {
			return fmt.Errorf("event %d had its effect behind a later one of key %d", id, k)
		}
		last[k] = first[id]
	}
	return nil
}
