package sink

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// batchShare is the part of the unrecorded credit, without what other batches without an answer hold, that one batch
// may take (an eighth): so however many partitions are in trouble, there is credit left for the others.
const batchShare = 8

// sentShare is the part of the window's bytes, a fifth, that batches without an answer should hold together: a driver
// may keep a copy of each, and one more is on its way. Of what is left of it one batch may take batchShare, and always
// a record, so that it is passed only by large ones.
const sentShare = 5

// spareBatches bounds the batches kept for reuse.
const spareBatches = 256

// partition is one partition's queue and its batch. Guarded by Engine.mu.
//
// It is listed in one worker's ready list when it has work and is not busy; busy while a worker has its batch in a
// request.
type partition struct {
	topic      *topic
	number     int32
	queue      recordQueue // not in the batch
	queueBytes int         // by Driver.Size
	batch      *Batch      // cut, to be sent until it is accepted or refused; nil when there is none
	narrow     int         // so many records at the head of the queue contain a guilty one that the broker did not name
	solo       *worker     // its own worker while it is in trouble, else nil
	busy       bool        // its batch is with the driver
	listed     bool        // in a ready list
	diverted   bool        // see Engine.Divert
	nextReady  *partition  // in a ready list

	sentAt time.Time // when its batch was handed to the driver last
	slow   time.Time // since when its requests are slow; zero when the last was not
	// since when it is known that a later request than its slow one was answered in time; zero: not known
	passed   time.Time
	accepted time.Time // when a batch was accepted last
	failures int       // of the batch, in a row; without a batch: of the last that was given back, see giveBack
	since    time.Time // of the first of these, or since when it has had no leader
	kind     Trouble   // of the last of these
	err      error     // of the last of these
}

// hasWork reports whether there is anything to send, or to give back.
func (p *partition) hasWork() bool { return p.batch != nil || p.queue.length > 0 }

// ready is a FIFO of partitions that have work.
type ready struct {
	head, tail *partition
	length     int
}

func (l *ready) push(p *partition) {
	p.listed, p.nextReady = true, nil
	if l.tail == nil {
		l.head = p
	} else {
		l.tail.nextReady = p
	}
	l.tail = p
	l.length++
}

func (l *ready) pushFront(p *partition) {
	p.listed, p.nextReady = true, l.head
	l.head = p
	if l.tail == nil {
		l.tail = p
	}
	l.length++
}

// pop removes the head, nil when there is none.
func (l *ready) pop() *partition {
	p := l.head
	if p == nil {
		return nil
	}
	l.head = p.nextReady
	if l.head == nil {
		l.tail = nil
	}
	p.listed, p.nextReady = false, nil
	l.length--
	return p
}

// append moves all of other to the end.
func (l *ready) append(other *ready) {
	for p := other.pop(); p != nil; p = other.pop() {
		l.push(p)
	}
}

// isolate gives the partition its own worker, so that no other waits for it.
func (e *Engine) isolate(p *partition, node int32) *worker {
	p.solo = e.start(&worker{node: node, solo: p})
	e.solos[p.solo] = struct{}{}
	return p.solo
}

// retire ends a solo, whose partition is well again or gone.
func (e *Engine) retire(w *worker) {
	w.retired = true
	w.solo.solo = nil
	delete(e.solos, w)
	w.ready.pop()
	signal(w.wake)
}

// cut makes the partition's next batch from the head of its queue, and gives rejected records back when it is their
// turn. The batch is nil if nothing can be sent: the queue is empty then, or there is no unrecorded credit.
func (e *Engine) cut(p *partition, now time.Time) *Batch {
	batchLimit, recordLimit := e.driver.Limits(p.topic.name)
	most := 0
	if !e.starved() {
		most = min(e.fullBatch(), e.config.MaxUnrecorded-e.unrecorded)
	}
	room := (e.config.MaxBytes/sentShare - e.sentBytes) / batchShare
	narrowed := p.narrow > 0
	if narrowed {
		most = min(most, max(1, p.narrow/2))
	}
	b := e.newBatch(p)
	b.Narrowed = narrowed
	holds := false
	for r := p.queue.head(); r != nil; r = p.queue.head() {
		if l := p.topic.blocks(r); l != nil { // held just now: else sweep would have taken it
			e.holdQueued(p.next(), l)
			p.topic.queued--
			continue
		}
		size := int(r.engine.size)
		if r.Reason == nil && recordLimit > 0 && size > recordLimit {
			r.Reason = tooLarge(p.topic.name, size, recordLimit)
		}
		if r.Reason != nil {
			if b.hasLane(r) {
				break // its lane's earlier records come first
			}
			e.reject(p, p.next(), now)
			p.topic.queued--
			holds = holds || r.Key != nil
			continue
		}
		if len(b.Records) >= most || len(b.Records) > 0 && (batchLimit > 0 && b.Bytes+size > batchLimit ||
			b.Bytes+size > room) {
			break
		}
		p.next()
		r.engine.place, r.engine.counted = sent, true
		b.Records = append(b.Records, r)
		b.Bytes += size
	}
	if holds {
		e.sweep(p)
	}
	e.unrecorded += len(b.Records)
	e.outstanding += len(b.Records)
	e.sentBytes += b.Bytes
	if e.unrecorded > e.config.MaxUnrecorded {
		panic(fmt.Sprintf("sink: %d unrecorded records, more than %d", e.unrecorded, e.config.MaxUnrecorded))
	}
	if len(b.Records) == 0 {
		e.recycle(b)
		b = nil
	}
	e.switchIfDrained(p.topic)
	return b
}

// sweep gives back what waits behind the rejections of lanes of the partition, so that a held lane's records are with
// the submitter at once, whatever delays the partition.
func (e *Engine) sweep(p *partition) {
	suspects := p.narrow
	for i := range p.queue.length { // once around
		r := p.queue.pop()
		l := p.topic.blocks(r)
		if l == nil {
			p.queue.push(r)
			continue
		}
		if i < suspects {
			p.narrow--
		}
		p.queueBytes -= int(r.engine.size)
		p.topic.queued--
		e.holdQueued(r, l)
	}
	e.sift(p.topic)
}

// next takes the head of the queue out of it, into a batch or to the results.
func (p *partition) next() *Record {
	r := p.queue.pop()
	p.queueBytes -= int(r.engine.size)
	if p.narrow > 0 {
		p.narrow--
	}
	return r
}

// hasLane reports whether another record of the record's lane is in the batch; no key is no lane.
func (b *Batch) hasLane(of *Record) bool {
	for _, r := range b.Records {
		if of.Key != nil && r.Key != nil && r.Source == of.Source && bytes.Equal(r.Key, of.Key) {
			return true
		}
	}
	return false
}

func tooLarge(topic string, size, limit int) *Reason {
	return &Reason{
		Class: outbox.Permanent, Code: "MESSAGE_TOO_LARGE",
		Text: fmt.Sprintf("the record has %d bytes, topic %q takes at most %d", size, topic, limit),
	}
}

func (e *Engine) newBatch(p *partition) *Batch {
	b := &Batch{}
	if n := len(e.spare); n > 0 {
		b, e.spare = e.spare[n-1], e.spare[:n-1]
	}
	b.Topic, b.Partition = p.topic.name, p.number
	return b
}

// recycle keeps the batch for reuse, without what it holds.
func (e *Engine) recycle(b *Batch) {
	if len(e.spare) == spareBatches {
		return
	}
	clear(b.Records)
	*b = Batch{Records: b.Records[:0]}
	e.spare = append(e.spare, b)
}

// accept gives the partition's batch back as published.
func (e *Engine) accept(p *partition, now time.Time) {
	b := p.batch
	e.resolve(p)
	e.publish(p, b, len(b.Records), now)
	e.recycle(b)
}

// acceptFront gives the front of the partition's batch that is written back as published; the rest stays the batch.
func (e *Engine) acceptFront(p *partition, now time.Time) {
	b, n := p.batch, p.batch.Outcome.Written
	if n < 0 || n >= len(b.Records) {
		panic(fmt.Sprintf("sink: the driver reported %d of %d records as written", n, len(b.Records)))
	}
	size := 0
	for _, r := range b.Records[:n] {
		size += int(r.engine.size)
	}
	e.outstanding -= n
	e.sentBytes -= size
	b.Bytes -= size
	e.publish(p, b, n, now)
	b.Records = slices.Delete(b.Records, 0, n)
	guilty, beyond := b.Outcome.Guilty, b.Outcome.Beyond
	for i := range guilty {
		guilty[i] -= n
	}
	for i := range beyond {
		beyond[i].Index -= n
	}
	p.failures, p.kind, p.err, p.since = 0, NoTrouble, nil, time.Time{} // it went on
}

// publish gives the first n records of the batch back as published.
func (e *Engine) publish(p *partition, b *Batch, n int, now time.Time) {
	o := &b.Outcome
	if o.Offsets != nil && len(o.Offsets) < n {
		panic(fmt.Sprintf("sink: the driver gave %d offsets for %d written records", len(o.Offsets), n))
	}
	p.accepted = now
	complete := o.complete(o.Beyond) // of what comes after them
	for i := n - 1; i >= 0; i-- {
		r := b.Records[i]
		r.Offset = o.offset(i)
		r.Complete = min(r.Offset+1, complete)
		complete = min(complete, r.Offset)
	}
	for _, r := range b.Records[:n] {
		e.publishOne(p, r, now)
	}
	if p.topic.diverted {
		p.topic.accepts()
	}
	p.topic.queued -= n
	e.switchIfDrained(p.topic)
}

// publishOne gives a record back as published; its offset is set.
func (e *Engine) publishOne(p *partition, r *Record, now time.Time) {
	if l := r.engine.lane; l != nil {
		l.retrying--
		r.engine.lane, r.engine.generation = nil, 0
	}
	r.Partition = p.number
	e.finish(r, Published, now)
}

// refuse puts the records of the partition's batch back to the head of its queue, and marks those that are guilty;
// cut gives them back when it is their turn. If the broker did not name them, the next batches are halves until one
// record is alone.
func (e *Engine) refuse(p *partition) {
	b, o := p.batch, &p.batch.Outcome
	e.resolve(p)
	p.narrow = 0
	switch {
	case len(o.Reasons) == 0 || len(o.Reasons) > 1 && len(o.Reasons) != len(o.Guilty):
		panic(fmt.Sprintf("sink: the driver refused a batch with %d reasons for %d guilty records", len(o.Reasons),
			len(o.Guilty)))
	case len(o.Guilty) > 0:
		for i, guilty := range o.Guilty {
			b.Records[guilty].Reason = o.Reasons[min(i, len(o.Reasons)-1)]
		}
	case len(b.Records) == 1:
		b.Records[0].Reason = o.Reasons[0]
	default:
		p.narrow = len(b.Records)
	}
	e.unrecorded -= len(b.Records)
	for i := len(b.Records) - 1; i >= 0; i-- {
		r := b.Records[i]
		r.engine.place, r.engine.counted = queued, false
		p.queue.pushFront(r)
		p.queueBytes += int(r.engine.size)
	}
	e.recycle(b)
}

// resolve ends the attempts of the partition's batch.
func (e *Engine) resolve(p *partition) {
	e.outstanding -= len(p.batch.Records)
	e.sentBytes -= p.batch.Bytes
	p.batch, p.failures, p.kind, p.err, p.since = nil, 0, NoTrouble, nil, time.Time{}
}

// fail notes that an attempt of the partition's batch failed.
func (e *Engine) fail(p *partition, now time.Time) {
	o := &p.batch.Outcome
	if p.failures == 0 {
		p.since = now
	}
	p.failures++
	p.kind, p.err = o.Trouble, o.Err
}
