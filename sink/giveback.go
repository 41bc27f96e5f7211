package sink

import "time"

// giveAllBack gives the batches of the topic's diverted partitions back.
func (e *Engine) giveAllBack(t *topic) {
	now := time.Now()
	for _, p := range t.partitions {
		e.giveBack(p, now)
	}
}

// giveBack returns the records of a diverted partition's failed batch to the submitter as Held, or as Published where
// the driver said that they are written. So nothing of a topic in trouble stays with the engine, and the submitter can
// confirm what came later. A batch that may have been written stays, unless nothing can be learned by sending it again.
//
// The partition keeps what is known of its failure and counts as in trouble until a later batch of it is accepted, or
// the driver reports that the topic is back.
func (e *Engine) giveBack(p *partition, now time.Time) {
	b := p.batch
	if diverted := p.diverted || p.topic.diverted; !diverted || b == nil || p.busy || !e.mayGiveBack(p) {
		return
	}
	if d, ok := e.driver.(Dropper); ok {
		d.Dropped(b)
	}
	e.returns++
	e.outstanding -= len(b.Records)
	e.sentBytes -= b.Bytes
	p.batch, p.narrow = nil, 0
	if p.failures == 0 {
		p.failures, p.since = 1, now
	}
	beyond := b.Outcome.Beyond
	var stay []*Record
	for i, r := range b.Records {
		if len(beyond) > 0 && beyond[0].Index == i {
			r.Offset = beyond[0].Offset
			beyond = beyond[1:]
			r.Complete = min(r.Offset+1, b.Outcome.complete(beyond))
			e.publishOne(p, r, now)
			p.topic.queued--
			continue
		}
		e.unrecorded--
		r.engine.counted = false
		if r.engine.alone {
			stay = append(stay, r)
			continue
		}
		p.topic.queued--
		e.giveOneBack(p, r, now)
	}
	for i := len(stay) - 1; i >= 0; i-- {
		stay[i].engine.place = queued
		p.queue.pushFront(stay[i])
		p.queueBytes += int(stay[i].engine.size)
	}
	e.recycle(b)
	e.sweep(p) // what is left of a retry must not overtake its head
	e.switchIfDrained(p.topic)
	signal(e.arrived)
	e.feed()
}

// giveOneBack returns a record of a batch that is given up. The first one of a lane comes back as the one that is in
// trouble (WasHeld is false), those behind it as held by it.
func (e *Engine) giveOneBack(p *partition, r *Record, now time.Time) {
	if r.Key == nil {
		r.Partition, r.Offset, r.WasHeld = p.number, -1, false
		e.finish(r, Held, now)
		return
	}
	l := e.makeHeld(p.topic, r.Lane())
	if r.engine.lane != nil && l.retrying > 1 { // the rest of its retry comes back, too
		e.generations++
		l.generation = e.generations
	}
	behind := l.returned == e.returns
	l.returned = e.returns
	e.holdQueued(r, l)
	r.Partition, r.WasHeld = p.number, behind
}

// mayGiveBack reports whether the partition's batch need not be sent again as it is: it failed and is certainly not
// written, or its topic is gone, which keeps it from ever being known. Any other batch that may have been written
// stays, with its credit, until it is known. In other batches its records could be written twice, and unrecorded
// records would be more than MaxUnrecorded.
func (e *Engine) mayGiveBack(p *partition) bool {
	o := &p.batch.Outcome
	switch {
	case gone(p.topic.err) || p.failures > 0 && gone(p.err):
		return true
	case o.Verdict == NotWritten && !o.goesOn():
		return p.failures > 0
	case o.Verdict == NotWritten: // it waits for a turn that does not come while no one leads the partition
		return p.topic.err != nil && troubleOf(p.topic.err) == TopicTrouble && e.driver.Node(p.topic.name, p.number) < 0
	}
	return false
}

// unproved reports whether the partition's last batch failed and was given back, and nothing has been sent since.
func (p *partition) unproved() bool { return p.failures > 0 && p.batch == nil }

// trust forgets why the partition's batch was given back: the topic is known to be well, or the submitter wants to see
// for itself.
func (p *partition) trust() {
	if p.unproved() {
		p.failures, p.kind, p.err, p.since = 0, NoTrouble, nil, time.Time{}
	}
}

// accepts notes that a partition of the topic took something: its trouble as a whole is over.
func (t *topic) accepts() {
	for _, p := range t.partitions {
		if p.kind == TopicTrouble {
			p.trust()
		}
	}
}

// returns notes that the driver knows the topic again.
func (t *topic) returns() {
	for _, p := range t.partitions {
		p.trust()
	}
}

// Unanswered counts the records of the topic that the driver has, or gets again, because it is not known whether they
// are written.
func (e *Engine) Unanswered(topic string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.topics[topic]
	if t == nil {
		return 0
	}
	for _, p := range t.partitions {
		if p.batch != nil {
			n += len(p.batch.Records)
		}
	}
	return n
}
