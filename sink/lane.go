package sink

import (
	"bytes"
	"fmt"
	"time"
)

// laneName is the name of a lane within its topic.
type laneName struct {
	source int32
	key    string
}

// lane is a held lane: its records come back Held until Release.
type lane struct {
	generation uint64 // of its last rejection; unique in the engine, growing
	out        int    // records that were rejected or held and are neither settled nor retried
	earlier    int    // those of out that were rejected, or held after they had been queued: all but the latest
	retrying   int    // records of the retry that is out, without a result
	returned   uint64 // Engine.returns when records of the lane were given back with their batch last
}

// blocks is the held lane that keeps the record from being sent, or nil. It looks nothing up while no lane of the topic
// is held.
func (t *topic) blocks(r *Record) *lane {
	if len(t.held) == 0 || r.Key == nil || r.engine.alone {
		return nil
	}
	if l := t.held[laneName{r.Source, string(r.Key)}]; l != nil && l.generation != r.engine.generation {
		return l
	}
	return nil
}

func (e *Engine) heldLane(of Lane) (*topic, *lane) {
	t := e.topics[of.Topic]
	if t == nil || of.Key == nil {
		return t, nil
	}
	return t, t.held[laneName{of.Source, string(of.Key)}]
}

// reject gives a record of the partition back as Rejected for r.Reason and holds its lane. Nothing of its lane that was
// submitted earlier may be without a result.
func (e *Engine) reject(p *partition, r *Record, now time.Time) {
	r.Partition, r.Offset = p.number, -1
	if r.Key != nil && !r.engine.alone {
		l := e.makeHeld(p.topic, r.Lane())
		e.generations++
		l.generation = e.generations
		l.keep(r)
		l.mark(r)
	}
	e.finish(r, Rejected, now)
	signal(e.arrived)
}

// hold gives the record back as Held: one that comes when the lane is held already, or is still in the topic's queue.
func (e *Engine) hold(r *Record, l *lane) {
	r.Partition, r.Offset, r.WasHeld = -1, -1, true
	l.keep(r)
	e.finish(r, Held, time.Now())
	signal(e.arrived)
}

// keep notes that the record goes back to the submitter as rejected or held.
func (l *lane) keep(r *Record) {
	if r.engine.lane != nil { // it was retried
		l.retrying--
	}
	l.out++
	r.engine.lane, r.engine.generation = l, 0
	r.Generation = l.generation
}

// holdQueued gives a record back as Held that has been in a queue. A retry that is out is behind it and must come back
// too.
func (e *Engine) holdQueued(r *Record, l *lane) {
	if r.engine.lane == nil && l.retrying > 0 {
		e.generations++
		l.generation = e.generations
	}
	e.hold(r, l)
	l.mark(r)
}

// mark counts a record that was given back as an earlier one.
func (l *lane) mark(r *Record) {
	r.engine.earlier = true
	l.earlier++
}

// leave records that a record that was given back is settled or retried.
func (l *lane) leave(r *Record) {
	l.out--
	if r.engine.earlier {
		r.engine.earlier = false
		l.earlier--
	}
}

// Retry hands records of a held lane in again, past the hold and without waiting for the window: those that Results
// returned as Rejected or Held and that were not settled, or new ones. One retry of a lane may be out at a time; the
// generation must be the lane's current one. With an error ([ErrNotHeld], [ErrStaleGeneration], [ErrRetryOut],
// [ErrClosed]) nothing is taken. A record without a key has no lane to be held: settle it and submit it again.
//
// The order of results holds within the retry: records submitted for the lane in the meantime come back Held, maybe
// before the retry has its results.
//
// The engine does not know what the submitter keeps to itself: before it retries an event that it did not submit
// because the lane was held, every earlier one that it did submit must have come back.
//
// It panics on a record of another lane, and on one that the engine still has or that was published.
func (e *Engine) Retry(of Lane, generation uint64, records []*Record) error {
	since := time.Since(e.origin).Nanoseconds()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return fmt.Errorf("retry: %w", ErrClosed)
	}
	t, l := e.heldLane(of)
	switch {
	case l == nil:
		return fmt.Errorf("retry: %w", ErrNotHeld)
	case l.generation != generation:
		return fmt.Errorf("retry: %w: it is %d, not %d", ErrStaleGeneration, l.generation, generation)
	case l.retrying > 0:
		return fmt.Errorf("retry: %w", ErrRetryOut)
	}
	e.handIn(t, l, of, records, since)
	return nil
}

// Resume hands in, past the hold, records that the submitter keeps from earlier than everything that it submits for the
// lane from now on, and makes the lane a held one if it is not. It takes nothing while a record of the lane is out that
// may come before them: one that was rejected, or one that had been queued and was held, until it is settled
// ([ErrEarlierOut]); nor while a retry is out ([ErrRetryOut]), nor after Close ([ErrClosed]). Those without a result
// are in front of them in the same queue. Otherwise it is as [Engine.Retry].
func (e *Engine) Resume(of Lane, records []*Record) error {
	since := time.Since(e.origin).Nanoseconds()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return fmt.Errorf("resume: %w", ErrClosed)
	}
	t := e.topicOf(of.Topic)
	l := e.makeHeld(t, of)
	switch {
	case l.retrying > 0:
		return fmt.Errorf("resume: %w", ErrRetryOut)
	case l.earlier > 0:
		return fmt.Errorf("resume: %w", ErrEarlierOut)
	}
	e.handIn(t, l, of, records, since)
	return nil
}

// Insert hands in a record that is a lane of its own even if it has a key: it is never held and holds no other, it is
// not diverted, and it takes its place in the window without waiting, so the submitter bounds how many are out. Its
// only results are Published and Rejected. [ErrClosed] after Close.
func (e *Engine) Insert(r *Record) error {
	since := time.Since(e.origin).Nanoseconds()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return fmt.Errorf("insert: %w", ErrClosed)
	}
	if r.engine.place != nowhere {
		panic("sink: Insert of a record that is " + r.engine.place.String())
	}
	e.admit(r, since)
	r.engine.alone = true
	e.route(e.topicOf(r.Topic), r)
	return nil
}

// handIn takes a retry of the lane.
func (e *Engine) handIn(t *topic, l *lane, of Lane, records []*Record, since int64) {
	for _, r := range records {
		if r.Topic != t.name || r.Source != of.Source || r.Key == nil || !bytes.Equal(r.Key, of.Key) {
			panic("sink: Retry of a record of another lane")
		}
		fromLane := r.engine.place == withSubmitter && r.engine.lane == l
		if !fromLane && r.engine.place != nowhere {
			panic("sink: Retry of a record that was not rejected or held and is " + r.engine.place.String())
		}
	}
	for _, r := range records {
		if r.engine.place == withSubmitter {
			l.leave(r)
			r.clearResult()
		} else {
			e.admit(r, since)
		}
		r.engine.lane, r.engine.generation = l, l.generation
		l.retrying++
		e.route(t, r)
	}
}

// Release lifts the hold of a lane and says true, if the generation is the current one, no retry is out, and none of
// the records that were rejected or held is without being settled or retried, results that wait for Results included.
// Otherwise it changes nothing.
func (e *Engine) Release(of Lane, generation uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	t, l := e.heldLane(of)
	if l == nil || l.generation != generation || l.retrying > 0 || l.out > 0 {
		return false
	}
	delete(t.held, laneName{of.Source, string(of.Key)})
	return true
}
