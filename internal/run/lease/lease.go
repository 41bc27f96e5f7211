// Package lease keeps the proof that this process holds the slot. Beside its own, its tests are those of package relay,
// on real servers, and the simulator with its mutants.
package lease

import (
	"sync/atomic"
	"time"
)

// Lease is the proof that this process holds the slot: the server lets one connection stream from it. A process that
// was frozen and wakes up, or that is cut off, must not go on to produce what another one has taken over; its
// connection does not tell in time, the age of the last proof does. The server gives a silent stream up after
// wal_sender_timeout, and only then grants it to another, so half of that is safe.
//
// It belongs to a term: what an earlier one still had in its hands can never use the proof of the next.
type Lease struct {
	origin time.Time     // its monotonic clock counts
	valid  time.Duration // how old a proof may be
	proved atomic.Int64  // nanoseconds from origin to the last proof; 0: none
	wanted chan struct{} // holds a token when someone waits for the next proof
}

// New makes a lease without a proof, for a server that gives a silent stream up after so long.
func New(origin time.Time, walSenderTimeout time.Duration) *Lease {
	return &Lease{origin: origin, valid: walSenderTimeout / 2, wanted: make(chan struct{}, 1)}
}

// Valid is how old a proof may be.
func (l *Lease) Valid() time.Duration { return l.valid }

// Prove notes a proof: the server's answer, to a question asked at that time, that our connection is the active one.
// What the stream brings is none: after a freeze the socket's buffer still holds what the server sent while it was
// ours.
func (l *Lease) Prove(at time.Time) { l.proved.Store(max(at.Sub(l.origin).Nanoseconds(), 1)) }

// Disown forgets the proof: the connection that held the slot is gone, so another relay may have it at once.
func (l *Lease) Disown() { l.proved.Store(0) }

// Wanted receives when someone waits for a proof that is not made yet.
func (l *Lease) Wanted() <-chan struct{} { return l.wanted }

// MayProduce reports whether the last proof is young enough to start a request and, where a time is given, of a
// question that was asked after it. One that is not is wanted from now on.
func (l *Lease) MayProduce(after time.Time) bool {
	proved := l.proved.Load()
	if proved == 0 || time.Since(l.origin)-time.Duration(proved) >= l.valid {
		return false
	}
	if after.IsZero() || time.Duration(proved) > after.Sub(l.origin) {
		return true
	}
	select {
	case l.wanted <- struct{}{}:
	default:
	}
	return false
}
