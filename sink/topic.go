package sink

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// topic routes records to partitions. Guarded by Engine.mu.
type topic struct {
	name       string
	partitions []*partition // by number; as many as records are routed to, 0 while the number is not known
	// the number of partitions to which routing changes when the topic is drained; 0 = no change
	next     int
	waiting  recordQueue // records that are not routed yet: number unknown or about to change
	queued   int         // records in partitions' queues and batches
	held     map[laneName]*lane
	since    time.Time // when records began to wait for the number of partitions
	err      error     // why the driver does not know it
	refused  *Reason   // why no record may go there; the driver is never asked about such a topic
	diverted bool      // see Engine.Divert
	word     string    // what the broker calls it; "": topic, with partitions
}

// place is the topic in a text for people.
func (t *topic) place() string { return fmt.Sprintf("%s %q", cmp.Or(t.word, "topic"), t.name) }

// topicOf is the topic of the name, made at first sight.
func (e *Engine) topicOf(name string) *topic {
	t := e.topics[name]
	if t == nil {
		t = &topic{name: name, refused: e.config.Refuse(name)}
		if driver, is := e.driver.(Worded); is {
			t.word = driver.Word()
		}
		e.topics[name] = t
		e.ask(t)
	}
	return t
}

// route puts the record into the queue of its partition; while that cannot be chosen it waits in the topic, in order. A
// record of a held lane comes back at once.
func (e *Engine) route(t *topic, r *Record) {
	if l := t.blocks(r); l != nil {
		e.hold(r, l)
		return
	}
	if t.refused != nil {
		if !r.Doomed {
			r.Reason = t.refused
		}
		e.reject(&partition{topic: t, number: -1}, r, time.Now())
		return
	}
	if t.diverted && e.divert(t, r) {
		return
	}
	r.engine.place = queued
	if len(t.partitions) == 0 || t.next != 0 || t.waiting.length > 0 {
		if t.waiting.length == 0 {
			t.since = time.Now()
			signal(e.news)
		}
		t.waiting.push(r)
		return
	}
	number, size, reason := e.measure(r, len(t.partitions))
	if reason != nil {
		r.Doomed, r.Reason = true, reason
	}
	r.engine.size = int32(size)
	p := t.partitions[number]
	if p.diverted && e.divert(t, r) {
		return
	}
	p.queue.push(r)
	p.queueBytes += int(r.engine.size)
	t.queued++
	if !p.listed && !p.busy {
		e.enlist(p)
	}
}

// measure asks the driver for the record's partition and size.
func (e *Engine) measure(r *Record, partitions int) (number int32, size int, reason *Reason) {
	defer Recover(&reason)
	number = e.driver.Partition(r, partitions)
	size = e.driver.Size(r)
	return number, size, nil
}

// sift gives back what waits in the topic and is held or diverted by now. What is in front of it in partitions must
// have come back before.
func (e *Engine) sift(t *topic) {
	for range t.waiting.length { // once around
		r := t.waiting.pop()
		if l := t.blocks(r); l != nil {
			e.holdQueued(r, l)
		} else if !t.diverted || !e.divert(t, r) {
			t.waiting.push(r)
		}
	}
}

// switchIfDrained changes the topic's routing if it must and nothing of the topic is queued or in flight.
func (e *Engine) switchIfDrained(t *topic) {
	if t.queued == 0 && t.next != 0 {
		e.reroute(t)
	}
}

// ask learns the topic's number of partitions from the driver, and reports whether that waits to take effect. It does
// when nothing of the topic is queued or in flight: a key's records must not be in two partitions at a time.
//
// That may take forever if one partition is in trouble, and everything new of the topic waits until then. So a larger
// number is put off then, and what waits goes where it always went. A smaller one cannot be: partitions beyond it are
// gone.
func (e *Engine) ask(t *topic) (waits bool) {
	if t.refused != nil {
		return false
	}
	n, err := e.driver.Partitions(t.name)
	if t.err != nil && err == nil {
		t.returns()
	}
	t.err = err
	switch had := len(t.partitions); {
	case n <= 0: // not known, or not known any more: the partitions that we know wait for their leaders
		return t.next != 0
	case n == had || n > had && slices.ContainsFunc(t.partitions, e.ails):
		t.next = 0
		e.reroute(t) // nothing to wait for any more
	default:
		t.next = n
	}
	if err == nil && n < len(t.partitions) {
		e.vacate(t, t.partitions[n:])
	}
	e.switchIfDrained(t)
	return n != len(t.partitions)
}

// vacate takes everything out of partitions that are gone, to the front of what waits for the topic's new number of
// partitions: a lane has nothing in others, and all that waits of it came later. Their batches are given up, as no
// broker will ever answer for them. One that is with the driver is left for the next time.
func (e *Engine) vacate(t *topic, gone []*partition) {
	var all recordQueue
	for _, p := range gone {
		if p.busy {
			continue
		}
		if b := p.batch; b != nil {
			if d, ok := e.driver.(Dropper); ok {
				d.Dropped(b)
			}
			e.resolve(p)
			e.unrecorded -= len(b.Records)
			for _, r := range b.Records {
				r.engine.place, r.engine.counted = queued, false
				all.push(r)
			}
			e.recycle(b)
		}
		for p.queue.length > 0 {
			all.push(p.next())
		}
		if p.solo != nil {
			e.retire(p.solo)
		}
	}
	if all.length == 0 {
		return
	}
	t.queued -= all.length
	if t.waiting.length == 0 {
		t.since = time.Now()
	}
	for t.waiting.length > 0 {
		all.push(t.waiting.pop())
	}
	t.waiting = all
	e.sift(t)
	e.feed()
}

// reroute makes the next number of partitions the current one and routes what waited.
func (e *Engine) reroute(t *topic) {
	if from := len(t.partitions); t.next != 0 {
		t.partitions = t.partitions[:min(from, t.next)]
		for n := len(t.partitions); n < t.next; n++ {
			t.partitions = append(t.partitions, &partition{topic: t, number: int32(n)})
		}
		if from > 0 {
			e.rerouted++
			if rerouted := e.config.Hooks.Rerouted; rerouted != nil {
				rerouted(t.name, from, t.next)
			}
		}
		t.next = 0
	}
	waiting := t.waiting
	t.waiting = recordQueue{}
	for waiting.length > 0 {
		r := waiting.pop()
		if l := t.blocks(r); l != nil { // held since it waits
			e.holdQueued(r, l)
		} else {
			e.route(t, r)
		}
	}
}

// A refresh that takes longRefresh, as with thousands of topics, is followed by a pause of lockShare times as long: it
// holds the lock, and submitters and results wait for that.
const (
	longRefresh = time.Millisecond
	lockShare   = 4
)

// watch follows the driver's news about partitions and leaders until the engine stops.
func (e *Engine) watch() {
	defer e.goroutines.Done()
	again := time.NewTimer(askAgain)
	defer again.Stop()
	for {
		changed := e.driver.Changed()
		began := time.Now()
		if e.refresh() {
			again.Reset(askAgain)
		} else {
			again.Stop()
		}
		if took := time.Since(began); took > longRefresh && !e.rests(lockShare*took) {
			return
		}
		select {
		case <-changed:
		case <-again.C:
		case <-e.news:
		case <-e.stop:
			return
		}
	}
}

// rests waits; false: the engine stops.
func (e *Engine) rests(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-e.stop:
		return false
	}
}

// refresh asks the driver for every topic's partitions and every waiting partition's leader. It reports whether
// anything waits for an answer that the driver does not have.
func (e *Engine) refresh() (waits bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.topics {
		waits = e.ask(t) || waits || t.waiting.length > 0 && len(t.partitions) == 0
		if t.diverted && t.err != nil { // its batches may never get another attempt
			e.giveAllBack(t)
		}
	}
	var moved ready
	moved.append(&e.homeless)
	for _, w := range e.nodes {
		moved.append(&w.ready)
	}
	for p := moved.pop(); p != nil; p = moved.pop() {
		if int(p.number) < len(p.topic.partitions) { // else it is gone, and has no work
			e.enlist(p)
		}
	}
	for w := range e.solos {
		signal(w.wake)
		waits = waits || w.homeless
	}
	select {
	case <-e.news: // all that waits was just asked for, under the lock
	default:
	}
	return waits || e.homeless.head != nil
}
