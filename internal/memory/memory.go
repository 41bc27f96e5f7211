// Package memory holds the bytes of in-flight events: small memory that a delivery keeps from event
// to event, or large memory that is lent to it until its outcome is recorded. Neither makes garbage.
//
// Tested in memory_test.go; the poison, which only a race build has, by running the relay's tests with it.
package memory

import (
	"math/bits"
	"sync"
)

const (
	// Own is the size, in bytes, up to which a delivery keeps memory when it is free. There are thousands of deliveries,
	// so one large event in a hundred must not leave large memory in all of them.
	Own = 4 << 10
	// Lent is the size, in bytes, up to which memory is lent. What is larger lies alone in the buffer that it was read
	// into, and may as well stay there: to copy 100 kB cost 8 MiB more at the peak and was hardly faster.
	Lent = 1 << lentLog

	step    = 64 // that own memory grows by, so that events of nearly the same size do not make it grow each time
	ownLog  = 12 // Own is 1 << ownLog
	lentLog = 16
	sizes   = 4 // of each doubling, so that at most a quarter of what is lent stays empty
)

// Memory is that of one event at a time. Its zero value is ready. It is for one goroutine at a time.
type Memory struct {
	own  []byte
	lent *block
}

type block struct{ data []byte }

// spare has the blocks that no one uses, by size. What is not lent again soon is garbage.
var spare [(lentLog - ownLog) * sizes]sync.Pool

// Room is empty memory with room for so many bytes, and for nothing that was in it before. False: so many are not kept.
func (m *Memory) Room(size int) ([]byte, bool) {
	m.giveBack()
	switch {
	case size <= Own:
		if cap(m.own) < size {
			m.own = make([]byte, 0, (size+step-1)/step*step)
		}
		return m.own[:0], true
	case size > Lent:
		return nil, false
	}
	class, full := classOf(size)
	if m.lent, _ = spare[class].Get().(*block); m.lent == nil {
		m.lent = &block{make([]byte, 0, full)}
	}
	return m.lent.data, true
}

// Held is how many bytes the event in it holds back.
func (m *Memory) Held() int {
	if m.lent != nil {
		return cap(m.lent.data)
	}
	return cap(m.own)
}

// Freed is the memory for the next event: what was lent is given back, so no one may look at it any more.
func (m *Memory) Freed() Memory {
	m.giveBack()
	return Memory{own: m.own}
}

func (m *Memory) giveBack() {
	if m.lent == nil {
		return
	}
	class, _ := classOf(cap(m.lent.data))
	poison(m.lent.data[:cap(m.lent.data)])
	spare[class].Put(m.lent)
	m.lent = nil
}

// classOf returns the index in spare of blocks for size bytes, more than Own, and the room that
// they have: an Own, doubled, and a quarter of it or two or three more.
func classOf(size int) (class, full int) {
	doubled := bits.Len(uint(size-1)) - 1 // size is above 1 << doubled, and at most twice that
	quarter := 1 << doubled / sizes
	n := (size - 1 - 1<<doubled) / quarter
	return (doubled-ownLog)*sizes + n, 1<<doubled + (n+1)*quarter
}
