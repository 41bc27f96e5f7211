// Package offsets turns completions in any order into the one LSN that may be confirmed to Postgres. It does no I/O and
// has no clock and no goroutine.
package offsets

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Ledger holds, in stream order, the transactions between the confirmed LSN and the LSN received last. Each replication
// session has its own ledger: after a reconnect the stream begins again, in a new one.
//
// One goroutine feeds it from the stream (Begin, Add, Commit, Keepalive); any goroutine may call the other methods.
// Misuse panics: a ledger with wrong input could confirm an unsafe position and lose events.
//
// Invariants:
//   - L1 Confirmed never passes a transaction that is open or has a pending event.
//   - L2 Confirmed is the LSN given to New or an end given to Commit or Keepalive, and never goes back.
//   - L3 when nothing is open or pending, Confirmed is the highest LSN given.
//   - L4 every entry is a transaction that is open or has a pending event, and the ends grow from head to tail. What is
//     settled has given its end to the entry before it, or was confirmed. So there are at most Pending + 1 entries.
type Ledger struct {
	confirmed atomic.Uint64 // written under mu

	mu      sync.Mutex
	head    *Txn       // oldest entry; nil: everything given is confirmed
	tail    *Txn       // newest entry
	open    *Txn       // the transaction between Begin and Commit; always the tail
	free    *Txn       // entries to use again, linked by next
	highest outbox.LSN // the highest LSN given to New, Commit or Keepalive
	entries int        // from head to tail
	pending int        // sum over the entries
}

// Txn is a transaction of the stream that holds Confirmed back. Its fields are guarded by the ledger's mutex; callers
// only pass it to Done.
type Txn struct {
	ledger     *Ledger
	end        outbox.LSN // what may be confirmed when this entry and all before it are settled; 0 while it is open
	commitTime int64      // microseconds since the Unix epoch
	pending    int        // events added and not done
	prev, next *Txn
}

// New returns a ledger for a stream that continues at the LSN that the slot has confirmed.
func New(confirmed outbox.LSN) *Ledger {
	l := &Ledger{highest: confirmed}
	l.confirmed.Store(uint64(confirmed))
	return l
}

// Begin opens a transaction. commitTime is in microseconds since the Unix epoch.
func (l *Ledger) Begin(commitTime int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open != nil {
		panic("offsets: Begin inside a transaction")
	}
	l.open = l.push(commitTime)
}

// Add counts one more pending event of the open transaction and returns the transaction, for Done.
func (l *Ledger) Add() *Txn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		panic("offsets: Add outside a transaction")
	}
	l.open.pending++
	l.pending++
	return l.open
}

// Commit closes the open transaction. end is the TransactionEndLSN, the first byte behind the commit record: Postgres
// sends a transaction again unless the confirmed LSN is beyond the beginning of its commit record.
func (l *Ledger) Commit(end outbox.LSN) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.open
	if t == nil {
		panic("offsets: Commit without Begin")
	}
	if end <= l.highest {
		panic(fmt.Sprintf("offsets: Commit at %v, but WAL up to %v was given before", end, l.highest))
	}
	l.open = nil
	l.highest = end
	t.end = end
	if t.pending == 0 {
		l.settle(t)
	}
}

// Keepalive records that Postgres has decoded WAL up to walEnd and sent all of it that concerns this stream. Without it
// an idle outbox in a busy cluster would hold back ever more WAL. Inside a transaction, and below what was given
// before, it is ignored.
func (l *Ledger) Keepalive(walEnd outbox.LSN) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open != nil || walEnd <= l.highest {
		return
	}
	l.highest = walEnd
	l.reach(l.tail, walEnd)
}

// Done records that one event of t is terminal. It panics if t has no pending event.
func (l *Ledger) Done(t *Txn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t == nil || t.ledger != l {
		panic("offsets: Done of a transaction of another ledger")
	}
	if t.pending == 0 {
		panic("offsets: Done of more events than were added")
	}
	t.pending--
	l.pending--
	if t.pending == 0 && t != l.open {
		l.settle(t)
	}
}

// Confirmed is the LSN up to which every event is terminal: what may be confirmed to Postgres. It takes no lock.
func (l *Ledger) Confirmed() outbox.LSN { return outbox.LSN(l.confirmed.Load()) }

// Pending returns the number of events that were added and are not done.
func (l *Ledger) Pending() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pending
}

// Oldest is the commit time, in microseconds since the Unix epoch, of the oldest transaction that holds Confirmed back:
// it is open or has a pending event. ok is false when there is none.
func (l *Ledger) Oldest() (commitTime int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.head == nil {
		return 0, false
	}
	return l.head.commitTime, true
}

// Len returns the number of entries.
func (l *Ledger) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries
}

// push appends an entry.
func (l *Ledger) push(commitTime int64) *Txn {
	t := l.free
	if t == nil {
		t = &Txn{ledger: l}
	} else {
		l.free = t.next
	}
	t.end, t.commitTime = 0, commitTime
	t.prev, t.next = l.tail, nil
	if l.tail == nil {
		l.head = t
	} else {
		l.tail.next = t
	}
	l.tail = t
	l.entries++
	return t
}

// settle takes out an entry that is closed and has nothing pending, and keeps it for use again.
func (l *Ledger) settle(t *Txn) {
	l.reach(t.prev, t.end)
	if t.prev == nil {
		l.head = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		l.tail = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next = nil, l.free
	l.free = t
	l.entries--
}

// reach records that WAL up to end holds nothing unsettled behind the entry before, or nothing at all when before is
// nil.
func (l *Ledger) reach(before *Txn, end outbox.LSN) {
	if before != nil {
		before.end = end
		return
	}
	if end <= l.Confirmed() || end > l.highest {
		panic(fmt.Sprintf("offsets: about to confirm %v after %v, with WAL up to %v given", end, l.Confirmed(), l.highest))
	}
	l.confirmed.Store(uint64(end))
}
