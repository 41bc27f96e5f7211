package lanes

import (
	"math/rand/v2"
	"slices"
	"time"
)

// queue is the lanes that are ready, first in, first out.
type queue struct {
	lanes []*Lane
	head  int
}

func (q *queue) push(l *Lane) { q.lanes = append(q.lanes, l) }

func (q *queue) peek() *Lane {
	if q.head == len(q.lanes) {
		return nil
	}
	return q.lanes[q.head]
}

func (q *queue) pop() *Lane {
	l := q.peek()
	if l == nil {
		return nil
	}
	q.lanes[q.head] = nil
	if q.head++; q.head == len(q.lanes) {
		q.lanes, q.head = q.lanes[:0], 0
	} else if q.head >= 1024 && q.head*2 >= len(q.lanes) {
		n := copy(q.lanes, q.lanes[q.head:])
		clear(q.lanes[n:])
		q.lanes, q.head = q.lanes[:n], 0
	}
	return l
}

// popAny takes out a random one of those that fit, so that no order of the keys hides them.
func (q *queue) popAny(fits func(*Lane) bool) (found *Lane) {
	at, n := 0, 0
	for i, l := range q.lanes[q.head:] {
		if fits(l) {
			if n++; rand.IntN(n) == 0 {
				at, found = q.head+i, l
			}
		}
	}
	if found != nil {
		q.lanes = slices.Delete(q.lanes, at, at+1)
	}
	return found
}

// waits is a heap of the lanes that wait, by when they may go on.
type waits []*Lane

func (w waits) Len() int           { return len(w) }
func (w waits) Less(i, j int) bool { return w[i].until.Before(w[j].until) }
func (w waits) Swap(i, j int)      { w[i], w[j] = w[j], w[i] }
func (w *waits) Push(x any)        { *w = append(*w, x.(*Lane)) }
func (w *waits) Pop() any {
	old := *w
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*w = old[:len(old)-1]
	return last
}

// enqueue puts a lane among the ready ones if there is something to do for it.
func (e *Engine) enqueue(l *Lane) {
	if l.busy || l.ready || l.waits || l.over() {
		return
	}
	if l.parked && !l.due && (len(l.queue) == 0 || e.full) || !l.parked && len(l.queue) == 0 {
		return
	}
	l.ready = true
	if c := e.classes[e.class(l)]; l.strained() {
		c.strained.push(l)
	} else {
		c.ready.push(l)
	}
}

// first is the lane that comes next. In doubt, and when the breaker is open, it is one that does not fail, if there is
// one.
func (e *Engine) first(now time.Time) *Lane {
	b := &e.breaker
	if !b.careful() {
		return e.pop()
	}
	l := e.popHealthy()
	switch {
	case l != nil:
		l.ready, b.until = false, time.Time{}
		return l
	case b.doubt && e.busy == 0:
		b.idles(now)
	}
	if b.open && b.wait(now) <= 0 {
		return e.pop()
	}
	return nil
}

// inTurn calls with the classes that may have one job more, each time another one first, until it returns a lane.
func (e *Engine) inTurn(look func(*class) *Lane) *Lane {
	for range e.classes {
		c := e.classes[e.turn]
		if e.turn++; e.turn == len(e.classes) {
			e.turn = 0
		}
		if c.full() {
			continue
		}
		if l := look(c); l != nil {
			return l
		}
	}
	return nil
}

// popHealthy returns a lane that does not fail, or nil.
func (e *Engine) popHealthy() *Lane {
	return e.inTurn(func(c *class) *Lane {
		return c.ready.popAny(func(l *Lane) bool { return !l.strained() && !l.over() })
	})
}

// pop returns the next lane. Strained ones take turns with the others, and never have all workers: each of their jobs
// is several transactions, and an event of another key would wait for all that are due at once.
func (e *Engine) pop() *Lane {
	workers := e.options.Workers
	may := e.strained < max(1, workers-max(1, workers/4))
	return e.inTurn(func(c *class) *Lane {
		first, then := &c.ready, &c.strained
		if c.turn {
			first, then = then, first
		}
		for _, q := range []*queue{first, then} {
			if q == &c.strained && !may {
				continue
			}
			if l := q.next(); l != nil {
				c.turn = q == &c.ready
				return l
			}
		}
		return nil
	})
}

// next takes out the first one that is not over, nil if there is none.
func (q *queue) next() *Lane {
	for l := q.pop(); l != nil; l = q.pop() {
		l.ready = false
		if !l.over() {
			return l
		}
	}
	return nil
}

// popPlain returns the next lane of the class if it can join a transaction of others, and nil if not, or if there is no
// room.
func (e *Engine) popPlain(class, room int) *Lane {
	if room <= 0 {
		return nil
	}
	q := &e.classes[class].ready
	for next := q.peek(); next != nil; next = q.peek() {
		if over := next.over(); !over && (next.parked || next.alone > 0) {
			return nil
		} else if q.pop().ready = false; !over {
			return next
		}
	}
	return nil
}
