package sink

import (
	"fmt"
	"time"
)

// suspect is the number of failures in a row from which on a batch is in a request of its own: it may be what keeps the
// others' answers away.
const suspect = 2

// slowSolos bounds how many partitions go alone because their requests were slow, for when a whole node is slow;
// splitSolos how many there may be, those included, when the driver wants a request of unusual length split. What is
// left over is split when it takes long once more.
const slowSolos, splitSolos = 16, 64

// worker sends the batches of one node's partitions, one request at a time; or, with solo set, those of one partition
// in trouble, whichever node leads it.
type worker struct {
	node int32         // of a solo: of its last attempt
	solo *partition    // nil for a node's worker
	wake chan struct{} // holds a token when there may be something to do

	// Owned by the worker's goroutine, while a request is out.
	request []*Batch
	sending []*partition // of request
	resent  int          // records of request that were sent before
	left    int          // partitions with work that request had no place for: the round goes on with them
	round   time.Time    // when the first request of the round was made; see turnShare
	served  int          // partitions that were sent in the round

	// Guarded by Engine.mu.
	ready    ready
	failures int       // requests in a row that brought no answer; of a solo: that failed
	pause    time.Time // no request before
	homeless bool      // a solo whose partition has no leader
	retired  bool      // a solo whose partition is well again, or gone
}

// enlist puts a partition that has work, and is neither listed nor busy, where it is served: its own worker, its
// leader's, or the homeless.
func (e *Engine) enlist(p *partition) {
	w := p.solo
	if w == nil {
		node := e.driver.Node(p.topic.name, p.number)
		if node < 0 {
			if p.since.IsZero() {
				p.since = time.Now()
			}
			e.homeless.push(p)
			signal(e.news)
			return
		}
		if p.failures == 0 {
			p.since = time.Time{}
		}
		if w = e.nodes[node]; w == nil {
			w = e.start(&worker{node: node})
			e.nodes[node] = w
		}
	}
	w.ready.push(p)
	signal(w.wake)
}

func (e *Engine) start(w *worker) *worker {
	w.wake = make(chan struct{}, 1)
	if !e.closing {
		e.goroutines.Add(1)
		go e.run(w)
	}
	return w
}

// run is the worker's goroutine.
func (e *Engine) run(w *worker) {
	defer e.goroutines.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait, more := e.compose(w)
		if !more {
			return
		}
		if len(w.request) > 0 {
			began := time.Now()
			e.driver.Produce(e.sending, w.node, w.request)
			took := time.Since(began)
			e.observe(w, took)
			e.conclude(w, took)
			continue
		}
		var due <-chan time.Time
		if wait > 0 {
			timer.Reset(wait)
			due = timer.C
		}
		select {
		case <-w.wake:
		case <-due:
		case <-e.stop:
			return
		}
	}
}

// compose builds the worker's next request. An empty one means wait: so long, or with 0 until it is woken. It says
// false when the worker must end.
func (e *Engine) compose(w *worker) (wait time.Duration, more bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(w.request)
	w.request, w.sending, w.resent = w.request[:0], w.sending[:0], 0
	if e.closing || w.retired {
		return 0, false
	}
	if w.ready.head == nil {
		return 0, true
	}
	now := time.Now()
	if w.solo != nil && !e.follow(w, now) {
		return 0, true
	}
	if !e.permits(time.Time{}) {
		return permitPause, true
	}
	if wait = max(w.pause.Sub(now), e.throttled[w.node].until.Sub(now)); wait > 0 {
		return wait, true
	}
	if w.left == 0 {
		w.round, w.served = now, 0
	}
	w.left = 0
	return e.fill(w, now), true
}

// fill puts batches of the worker's partitions into its request, and says how long to wait if it has none: 0 until it
// is woken.
func (e *Engine) fill(w *worker, now time.Time) (wait time.Duration) {
	var starved ready
	bytes, records := 0, 0
	for p := w.ready.pop(); p != nil; p = w.ready.pop() {
		if !e.mayGoOn(p) {
			starved.push(p)
			wait = provePause
			continue
		}
		turn := records >= e.config.MaxUnrecorded/turnShare && p.gainsByWaiting()
		if len(w.request) > 0 && (turn || p.failures >= suspect || bytes+e.expect(p) > e.config.MaxRequestBytes) {
			w.ready.pushFront(p)
			if turn {
				w.left = w.ready.length
			}
			break
		}
		if !e.load(w, p, now) {
			if p.hasWork() {
				starved.push(p)
			}
			continue // batches to be sent again need no credit: they must not wait behind those that do
		}
		bytes += p.batch.Bytes
		records += len(p.batch.Records)
		if p.failures >= suspect {
			break
		}
	}
	starved.append(&w.ready)
	w.ready = starved
	return wait
}

// load adds the partition's batch to the worker's request. It says false if there is none to send: no work is left, or
// no unrecorded credit.
func (e *Engine) load(w *worker, p *partition, now time.Time) bool {
	if p.busy {
		panic(fmt.Sprintf("sink: partition %d of topic %q is sent twice at a time", p.number, p.topic.name))
	}
	p.busy = true // also keeps route from listing it
	// One that was only taken out of a slow request, or whose front was reported, is not a retry.
	if p.batch != nil && !p.batch.Outcome.Alone && !p.batch.Outcome.goesOn() {
		w.resent += len(p.batch.Records)
	}
	for p.batch == nil {
		p.batch = e.cut(p, now)
		starving := e.starved()
		if p.batch == nil && (starving || !p.hasWork()) {
			e.starving = e.starving || starving
			p.busy = false
			return false
		}
	}
	p.batch.Proved = p.batch.Outcome.Prove
	p.batch.Outcome, p.batch.Alone = Outcome{}, w.solo != nil
	p.sentAt = now
	w.request = append(w.request, p.batch)
	w.sending = append(w.sending, p)
	return true
}

// expect bounds the bytes that the partition's batch will add to a request.
func (e *Engine) expect(p *partition) int {
	if p.batch != nil {
		return p.batch.Bytes
	}
	limit, _ := e.driver.Limits(p.topic.name)
	if limit <= 0 {
		return p.queueBytes
	}
	return min(limit, p.queueBytes)
}

// follow looks up where a solo's partition is led now; false: nowhere. Another leader ends the pause; the same one,
// once more, does not.
func (e *Engine) follow(w *worker, now time.Time) bool {
	p, node := w.solo, e.driver.Node(w.solo.topic.name, w.solo.number)
	if node >= 0 && node != w.node {
		w.node, w.pause = node, time.Time{}
	}
	if node < 0 && !w.homeless {
		signal(e.news)
	}
	if w.homeless = node < 0; w.homeless && p.since.IsZero() {
		p.since = now
	}
	return !w.homeless
}

// conclude takes the answer to the worker's request to its partitions.
func (e *Engine) conclude(w *worker, took time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	answered := false
	for i, p := range w.sending {
		p.busy, p.passed = false, time.Time{}
		outcome := w.request[i].Outcome // accept and refuse recycle the batch
		if outcome.answered() {
			p.noteSpeed(now, took)
		}
		if outcome.Throttle > 0 {
			e.throttled[w.node] = throttle{outcome.Throttle, now.Add(outcome.Throttle)}
		}
		answered = answered || outcome.answered() || outcome.Alone
		if outcome.Written > 0 && outcome.Verdict != Accepted {
			e.acceptFront(p, now)
		}
		switch outcome.Verdict {
		case Accepted:
			if took < slowRequest && p.sentAt.After(e.prompt) {
				e.prompt = p.sentAt
			}
			e.accept(p, now)
		case Refused:
			e.refuse(p)
		case NotWritten, Unknown:
			if !outcome.Alone && !outcome.goesOn() {
				e.fail(p, now)
			}
		default:
			panic(fmt.Sprintf("sink: the driver left partition %d of topic %q without a verdict", p.number, p.topic.name))
		}
	}
	signal(e.arrived)
	if w.solo != nil {
		e.paceSolo(w, now, took)
	} else {
		e.paceNode(w, answered, now, took)
	}
	for _, p := range w.sending {
		e.giveBack(p, now)
		if p.hasWork() && !p.listed {
			e.enlist(p)
		}
	}
	e.feed()
}

// starved reports that there is no unrecorded credit to give out: it was used up, and there is not enough again for a
// batch of full size. Given out as it trickles in, it would make small batches, which cost so much more for each record
// that it goes on trickling. What was accepted is settled in time, so there will be enough.
func (e *Engine) starved() bool {
	credit := e.config.MaxUnrecorded - e.unrecorded
	return credit <= 0 || e.starving && credit < e.fullBatch()
}

// fullBatch is the most records that a batch may have now, if there is credit.
func (e *Engine) fullBatch() int { return (e.config.MaxUnrecorded-e.outstanding)/batchShare + 1 }

// feed wakes the workers that found no unrecorded credit, if there is enough now.
func (e *Engine) feed() {
	if !e.starving || e.starved() {
		return
	}
	e.starving = false
	for _, w := range e.nodes {
		signal(w.wake)
	}
	for w := range e.solos {
		signal(w.wake)
	}
}

// paceSolo decides when the partition's own worker goes on, and whether it is still needed.
func (e *Engine) paceSolo(w *worker, now time.Time, took time.Duration) {
	p := w.solo
	if p.failures == 1 { // the first of this batch, or of what is left of it
		w.failures = 0
	}
	if p.failures > 0 {
		w.failures++
		w.pause = e.backoff(p, w.failures, now)
		return
	}
	w.failures, w.pause = 0, time.Time{}
	if took < slowRequest {
		e.retire(w) // conclude lists it elsewhere
	}
}

// backoff is the time before which the partition's batch, having failed, is not sent again. The first failure need not
// pause if the driver says so.
func (e *Engine) backoff(p *partition, failures int, now time.Time) time.Time {
	if failures <= 1 && !p.batch.Outcome.Pause {
		return time.Time{}
	}
	return now.Add(e.config.Backoff(failures))
}

// paceNode decides when the node's worker goes on, and which partitions of its last request go alone from now on.
func (e *Engine) paceNode(w *worker, answered bool, now time.Time, took time.Duration) {
	wasWell := w.failures == 0
	if answered {
		w.failures, w.pause = 0, time.Time{}
		w.served += len(w.sending)
		// The requests of a round share linger: it is the time between two turns of a partition.
		share := e.linger(w) * time.Duration(w.served) / time.Duration(w.served+w.left)
		if next := w.round.Add(share); next.After(now) {
			w.pause = next
		}
	} else {
		w.failures++
		for _, p := range w.sending {
			if next := e.backoff(p, w.failures, now); next.After(w.pause) {
				w.pause = next
			}
		}
	}
	for _, p := range w.sending {
		var alone bool
		switch {
		case p.batch != nil && p.batch.Outcome.Alone:
			alone = len(e.solos) < splitSolos
		case p.failures == 0:
			alone = took >= slowRequest && len(e.solos) < slowSolos
		case answered: // the node is well, this partition is not
			alone = p.failures >= suspect || p.batch.Outcome.Pause
		default: // alone in its request and without an answer, on a node that had just answered others
			alone = wasWell && p.failures >= suspect
		}
		if alone && !p.listed { // listed: rerouted just now
			solo := e.isolate(p, w.node)
			if p.failures > 0 {
				solo.failures = p.failures
				solo.pause = e.backoff(p, p.failures, now)
			}
		}
	}
}

// observe tells the hook about the worker's request.
func (e *Engine) observe(w *worker, took time.Duration) {
	hook := e.config.Hooks.Request
	if hook == nil {
		return
	}
	done := Request{Node: w.node, Batches: w.request, Resent: w.resent, Took: took}
	for _, b := range w.request {
		if !b.Outcome.Unsent {
			done.Records += len(b.Records)
			done.Bytes += b.Bytes
		}
		if o := &b.Outcome; o.Verdict != Accepted && o.Verdict != Refused && o.Trouble >= done.Trouble {
			done.Trouble, done.Err = o.Trouble, o.Err
		}
	}
	hook(done)
}
