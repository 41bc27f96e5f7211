package sink

import (
	"math/bits"
	"sync"
)

// recordQueue is a FIFO of records, in a ring. Records are cold by the time that their turn comes: in a ring the
// processor fetches many at a time, where a chain through the records would make it wait for each one.
type recordQueue struct {
	ring   []*Record // its length is 0 or a power of two
	first  int       // where the head is
	length int
}

const (
	smallestRing = 64
	keptRing     = 1024 // a larger ring is given back when it is empty: a partition's rare burst must not stay with it
)

// rings are those that were given back, by the logarithm of their size.
var rings [bits.UintSize]sync.Pool

// head is the oldest record, nil when there is none.
func (q *recordQueue) head() *Record {
	if q.length == 0 {
		return nil
	}
	return q.ring[q.first]
}

func (q *recordQueue) push(r *Record) {
	if q.length == len(q.ring) {
		q.grow()
	}
	q.ring[(q.first+q.length)&(len(q.ring)-1)] = r
	q.length++
}

func (q *recordQueue) pushFront(r *Record) {
	if q.length == len(q.ring) {
		q.grow()
	}
	q.first = (q.first - 1) & (len(q.ring) - 1)
	q.ring[q.first] = r
	q.length++
}

// pop removes the head; the queue must not be empty.
func (q *recordQueue) pop() *Record {
	r := q.ring[q.first]
	q.ring[q.first] = nil
	q.first = (q.first + 1) & (len(q.ring) - 1)
	q.length--
	if q.length == 0 && len(q.ring) > keptRing {
		giveBack(q.ring)
		q.ring, q.first = nil, 0
	}
	return r
}

func (q *recordQueue) grow() {
	old := q.ring
	size := max(smallestRing, 2*len(old))
	if spare, _ := rings[bits.Len(uint(size))].Get().(*[]*Record); spare != nil {
		q.ring = *spare
	} else {
		q.ring = make([]*Record, size)
	}
	n := copy(q.ring, old[q.first:])
	copy(q.ring[n:], old[:q.first])
	q.first = 0
	if len(old) > keptRing {
		clear(old)
		giveBack(old)
	}
}

// giveBack keeps an empty ring for the next queue that needs one.
func giveBack(ring []*Record) { rings[bits.Len(uint(len(ring)))].Put(&ring) }
