package sink

import (
	"context"
	"fmt"
	"time"
)

// lockedRecords is the most records that Submit takes under one hold of the lock, so that a huge call does not keep
// workers and results waiting.
const lockedRecords = 1024

// Submit takes the records, in order. It waits while the window is full; taken is the length of the prefix that the
// engine took, less than all only with an error: the context's, or [ErrClosed]. What fits without waiting is taken
// even if the context has ended. It panics if the engine already has one of the records.
func (e *Engine) Submit(ctx context.Context, records []*Record) (taken int, err error) {
	since := time.Since(e.origin).Nanoseconds()
	for {
		n, err := e.take(records[taken:min(len(records), taken+lockedRecords)], since)
		taken += n
		if err != nil || taken == len(records) {
			return taken, err
		}
		if n == lockedRecords {
			continue
		}
		select {
		case <-e.room:
		case <-e.stop:
			return taken, fmt.Errorf("submit: %w", ErrClosed)
		case <-ctx.Done():
			return taken, fmt.Errorf("wait for room in the sink's window: %w", ctx.Err())
		}
	}
}

// take takes in the records that fit into the window.
func (e *Engine) take(records []*Record, since int64) (taken int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return 0, fmt.Errorf("submit: %w", ErrClosed)
	}
	var t *topic
	for _, r := range records {
		if !e.fits(r) {
			break
		}
		if r.engine.place != nowhere {
			panic("sink: Submit of a record that is " + r.engine.place.String())
		}
		if t == nil || t.name != r.Topic {
			t = e.topicOf(r.Topic)
		}
		e.admit(r, since)
		e.route(t, r)
		taken++
	}
	if taken == len(records) && e.events < e.config.MaxEvents && e.bytes < e.config.MaxBytes {
		signal(e.room) // for another Submit that waits
	}
	return taken, nil
}

// fits reports whether the window has room for the record. One that is larger than the window is admitted alone.
func (e *Engine) fits(r *Record) bool {
	return e.events == 0 || e.events < e.config.MaxEvents && e.bytes+r.Cost <= e.config.MaxBytes
}

// admit gives the record a place in the window.
func (e *Engine) admit(r *Record, since int64) {
	e.events++
	e.bytes += r.Cost
	r.engine.since = since
	r.clearResult()
}

func (r *Record) clearResult() {
	r.Result, r.Partition, r.Offset, r.At, r.Generation, r.WasHeld = None, 0, 0, time.Time{}, 0, false
	if !r.Doomed {
		r.Reason = nil
	}
}

// Results appends to into the records that have a result, oldest result first, and waits until there is one. With
// spare capacity in into it returns at most so many, otherwise all that wait. The error is the context's, or
// [ErrClosed] when the engine is closed and every result was returned.
func (e *Engine) Results(ctx context.Context, into []*Record) ([]*Record, error) {
	for {
		closed := false
		select {
		case <-e.done: // before the look: nothing is added any more
			closed = true
		default:
		}
		before := len(into)
		into = e.takeResults(into)
		if len(into) > before {
			return into, nil
		}
		if closed {
			return into, fmt.Errorf("wait for results: %w", ErrClosed)
		}
		select {
		case <-e.arrived:
		case <-e.done:
		case <-ctx.Done():
			return into, fmt.Errorf("wait for results: %w", ctx.Err())
		}
	}
}

func (e *Engine) takeResults(into []*Record) []*Record {
	e.mu.Lock()
	defer e.mu.Unlock()
	most := e.results.length
	if spare := cap(into) - len(into); spare > 0 {
		most = min(most, spare)
	}
	for range most {
		r := e.results.pop()
		r.engine.place = withSubmitter
		into = append(into, r)
	}
	if e.results.length > 0 {
		signal(e.arrived) // for another Results that waits, and for the next call
	}
	return into
}

// finish gives the record its result. The caller has set everything that belongs to it.
func (e *Engine) finish(r *Record, result Result, at time.Time) {
	r.Result, r.At = result, at
	r.engine.place = finished
	e.given++
	e.results.push(r)
}

// Settled gives records back whose outcome is durable: their room in the window and their unrecorded credit are free,
// and the submitter may reuse them. It panics if one has not been returned by Results.
func (e *Engine) Settled(records []*Record) {
	e.settle(records)
	e.offer()
}

// SettledThen is Settled that calls free in between: when the engine has let go of the records, and before their room
// is offered. So a submitter that uses its records again has them back when it is woken, and makes no new ones.
func (e *Engine) SettledThen(records []*Record, free func()) {
	e.settle(records)
	free()
	e.offer()
}

// offer wakes who waits for room in the window or for unrecorded credit.
func (e *Engine) offer() {
	signal(e.room)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.feed()
}

func (e *Engine) settle(records []*Record) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range records {
		if r.engine.place != withSubmitter {
			panic("sink: Settled of a record that is " + r.engine.place.String())
		}
		e.events--
		e.bytes -= r.Cost
		if r.engine.counted {
			e.unrecorded--
		}
		if l := r.engine.lane; l != nil {
			l.leave(r)
		}
		r.engine = engineState{}
	}
}
