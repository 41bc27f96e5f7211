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
)

type state int

const (
	done state = iota + 1
	parked
	dead
)

const (
	keys      = 3
	poisonous = 4 // one event in so many fails for good
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
	bad    map[int]bool // ids that fail for good
	db     *database
	older  []*database
	kafka  int // the group's offset: any member may set it to anything, also backwards
	calm   bool
}

func newWorld(seed uint64, b broken) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 19)), broken: b, bad: map[int]bool{}}
	w.db = &database{rows: map[int]state{}, tries: map[int]int{}}
	for id := range 12 {
		w.log = append(w.log, record{id, w.rng.IntN(keys)})
		w.bad[id] = w.rng.IntN(poisonous) == 0
		if w.rng.IntN(5) == 0 { // the relay was killed between sending and recording
			w.log = append(w.log, w.log[w.rng.IntN(len(w.log))])
		}
	}
	return w
}

// transact runs one transaction. Its answer may be lost, whether it was applied or not: then the process knows nothing.
func (w *world) transact(server int, body func(*database) bool) (ok, known bool) {
	if server != w.db.server && w.broken != anyServer {
		return false, false
	}
	after := w.db.copy()
	if !body(after) {
		return false, true
	}
	fate := 0
	if !w.calm {
		fate = w.rng.IntN(12)
	}
	switch fate {
	case 1: // rolled back by the server, and nobody is told
		return false, false
	case 2: // committed, and nobody is told
		w.db = after
		return false, false
	}
	w.db = after
	return true, true
}

// lane is what a process has in memory of one key.
type lane struct {
	queue  []int // positions in the log
	parked bool
}

// process is a consumer: the owner of the partition, or one that does not know yet that it is not.
type process struct {
	w       *world
	server  int
	phase   int // 0 and 1: what a start reads; 2: it works
	start   int
	fetched int
	lanes   [keys]lane
	decided map[int]bool // positions
}

func (w *world) begin() *process {
	return &process{w: w, server: w.db.server, decided: map[int]bool{}}
}

func (p *process) prefix() int {
	n := p.start
	for p.decided[n] {
		n++
	}
	return n
}

// step does one thing, whatever is possible; it reports whether there was any.
func (p *process) step() bool {
	if p.server != p.w.db.server && p.w.broken != anyServer {
		*p = *p.w.begin() // a session ends with the server that it knew
		return true
	}
	if p.phase < 2 {
		p.assign()
		return true
	}
	choices := []func() bool{p.fetch, p.commit}
	for k := range keys {
		choices = append(choices, func() bool { return p.work(k) }, func() bool { return p.retry(k) })
	}
	choices = append(choices, p.together)
	p.w.rng.Shuffle(len(choices), func(i, j int) { choices[i], choices[j] = choices[j], choices[i] })
	for _, do := range choices {
		if do() {
			return true
		}
	}
	return false
}

// assign is the first rule: offsets first, then parked lanes, then records.
func (p *process) assign() {
	offsets := p.phase == 0
	if p.w.broken == lanesFirst {
		offsets = !offsets
	}
	if offsets {
		p.start = min(p.w.db.offset, p.w.kafka)
		if p.w.broken == kafkaAlone {
			p.start = p.w.kafka
		}
		p.fetched = p.start
	} else {
		for k := range p.lanes {
			p.lanes[k].parked = len(p.w.db.lanes[k]) > 0
		}
	}
	p.phase++
}

func (p *process) fetch() bool {
	if p.fetched == len(p.w.log) {
		return false
	}
	l := &p.lanes[p.w.log[p.fetched].key]
	l.queue = append(l.queue, p.fetched)
	p.fetched++
	return true
}

// commit notes how far everything is decided, in the database, where it only grows, and then in Kafka, where it does
// what it is told: by a zombie too.
func (p *process) commit() bool {
	to := p.prefix()
	if p.w.broken == passesUndone {
		to = p.fetched
	}
	if to == p.start && p.w.kafka == to {
		return false
	}
	ok, _ := p.w.transact(p.server, func(d *database) bool { d.offset = max(d.offset, to); return true })
	if ok {
		p.w.kafka = to
	}
	return !p.w.calm || to > p.start && p.w.rng.IntN(3) == 0
}

// quiet reports whether all that is in the log is decided.
func (p *process) quiet() bool {
	return p.phase == 2 && p.prefix() == len(p.w.log) &&
		!slices.ContainsFunc(p.lanes[:], func(l lane) bool { return l.parked })
}

func (p *process) pop(k int) {
	l := &p.lanes[k]
	p.decided[l.queue[0]] = true
	l.queue = l.queue[1:]
}

func (p *process) fails(id int) bool { return p.w.bad[id] || !p.w.calm && p.w.rng.IntN(6) == 0 }

// work takes the lane's next event: it claims its row and has the effect, or parks it.
func (p *process) work(k int) bool {
	l := &p.lanes[k]
	if len(l.queue) == 0 {
		return false
	}
	id := p.w.log[l.queue[0]].id
	park := l.parked || p.fails(id)
	var found state
	ok, known := p.w.transact(p.server, func(d *database) bool {
		if found = d.rows[id]; found != 0 {
			return false
		}
		if !park {
			d.rows[id] = done
			d.effects = append(d.effects, id)
			return true
		}
		if p.w.broken != noRowForAPark {
			d.rows[id] = parked
		}
		d.lanes[k] = append(d.lanes[k], id)
		return true
	})
	switch {
	case ok:
		l.parked = park
		p.pop(k)
	case known: // somebody has decided it
		l.parked = l.parked || found == parked && p.w.broken != parkedIsDone
		p.pop(k)
	}
	return true
}

// together takes the next event of every lane in one transaction, which has all its effects or none.
func (p *process) together() bool {
	var ids, lanes []int
	for k := range p.lanes {
		l := &p.lanes[k]
		if len(l.queue) == 0 || l.parked || p.fails(p.w.log[l.queue[0]].id) {
			continue
		}
		ids, lanes = append(ids, p.w.log[l.queue[0]].id), append(lanes, k)
	}
	if len(ids) < 2 {
		return false
	}
	ok, _ := p.w.transact(p.server, func(d *database) bool {
		for _, id := range ids {
			if d.rows[id] != 0 {
				return false // each goes alone then
			}
			d.rows[id] = done
			d.effects = append(d.effects, id)
		}
		return true
	})
	if ok {
		for _, k := range lanes {
			p.pop(k)
		}
	}
	return ok || !p.w.calm
}

// retry takes the lowest event of a parked lane. A lane with nothing parked is free.
func (p *process) retry(k int) bool {
	l := &p.lanes[k]
	if !l.parked {
		return false
	}
	waiting := p.w.db.lanes[k] // read by an earlier statement of the transaction, or by one before it
	if len(waiting) == 0 {
		l.parked = false
		return true
	}
	id := waiting[0]
	if p.w.broken == anyOfTheLane {
		id = waiting[p.w.rng.IntN(len(waiting))]
	}
	fails := p.fails(id)
	settle := func(d *database) bool {
		at := slices.Index(d.lanes[k], id)
		if at < 0 && p.w.broken != blindRetry {
			return false
		}
		if fails {
			if d.tries[id]++; d.tries[id] < attempts || !p.w.bad[id] {
				return true
			}
			d.rows[id] = dead
		} else {
			d.rows[id] = done
			d.effects = append(d.effects, id)
		}
		if at >= 0 {
			d.lanes[k] = slices.Delete(d.lanes[k], at, at+1)
		}
		return true
	}
	if p.w.broken == blindRetry { // two of them have read the same
		p.w.transact(p.server, settle)
	}
	p.w.transact(p.server, settle)
	return true
}

// judge is what was promised.
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
