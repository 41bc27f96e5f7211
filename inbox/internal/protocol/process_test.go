package protocol

import "slices"

// lane holds a process's memory of one key.
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

	wrote      int // the offset that was written or read last
	last       int // the event whose state this process changed last, or -1
	lastParked bool
	met        map[int]state // events that others had decided, since then
}

func (w *world) begin() *process {
	return &process{w: w, server: w.db.server, decided: map[int]bool{}, last: -1, met: map[int]state{}}
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
	if p.w.broken != oldOffsets && p.w.rng.IntN(8) == 0 { // once a second, also where nothing has changed
		p.note(p.wrote)
		p.due()
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

// due sees all parked events, of any process.
func (p *process) due() {
	for k := range p.lanes {
		p.lanes[k].parked = p.lanes[k].parked || p.phase == 2 && len(p.w.db.lanes[k]) > 0
	}
}

// assign is the first rule: offsets first, then parked lanes, then records.
func (p *process) assign() {
	offsets := p.phase == 0
	if p.w.broken == lanesFirst {
		offsets = !offsets
	}
	if offsets {
		p.start, p.wrote = min(p.w.db.offset, p.w.kafka), p.w.db.offset
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
	ok, _ := p.note(to)
	if ok {
		p.w.kafka = to
	}
	return !p.w.calm || to > p.start && p.w.rng.IntN(3) == 0
}

// note writes an offset, unless the database has less than what was written last.
func (p *process) note(to int) (ok, known bool) {
	if p.w.broken == oldOffsets {
		return p.w.apply(func(d *database) bool { d.offset = max(d.offset, to); return true })
	}
	ok, known = p.transact(-1, func(d *database) bool { d.offset = max(d.offset, to); return true })
	if ok {
		p.wrote = max(p.wrote, to)
	}
	return ok, known
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
	ok, known := p.transact(id, func(d *database) bool {
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
	case known: // someone has decided it
		p.met[id] = found
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
		if len(l.queue) == 0 || l.parked {
			continue
		}
		// An event whose handler would end the transaction fails, and with it all others.
		if id := p.w.log[l.queue[0]].id; p.fails(id) && !(p.w.broken == endsInSQL && p.w.ends[id]) {
			continue
		}
		ids, lanes = append(ids, p.w.log[l.queue[0]].id), append(lanes, k)
	}
	if len(ids) < 2 {
		return false
	}
	ok, _ := p.transact(ids[len(ids)-1], func(d *database) bool {
		ended := false
		for _, id := range ids {
			if d.rows[id] != 0 {
				return false // each goes alone then
			}
			d.rows[id] = done
			if ended = ended || p.w.ends[id]; !ended {
				d.effects = append(d.effects, id)
			}
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
	changes := id
	if fails && (p.w.db.tries[id]+1 < attempts || !p.w.bad[id]) {
		changes = -1 // it stays parked, which proves nothing
	}
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
		p.transact(changes, settle)
	}
	p.transact(changes, settle)
	return true
}

// transact runs one transaction, for an event or for none. Its answer may be lost, whether it was applied or not: then
// the process knows nothing. A process whose database was set back begins again.
func (p *process) transact(id int, body func(*database) bool) (ok, known bool) {
	if p.isSetBack() {
		*p = *p.w.begin()
		return false, false
	}
	if ok, known = p.w.apply(body); ok && id >= 0 {
		clear(p.met)
		p.last, p.lastParked = id, p.w.db.rows[id] == parked
	}
	return ok, known
}

// isSetBack reports whether the server is another one, or the database lacks what the process committed or read last.
func (p *process) isSetBack() bool {
	d := p.w.db
	if p.server != d.server && p.w.broken != anyServer {
		return true
	}
	if p.phase == 0 || p.w.broken == blindToFacts || p.w.broken == anyServer {
		return false
	}
	for id, found := range p.met {
		if d.rows[id] == 0 || found != parked && d.rows[id] == parked {
			return true
		}
	}
	return d.offset < p.wrote ||
		p.last >= 0 && (d.rows[p.last] == 0 || !p.lastParked && d.rows[p.last] == parked)
}
