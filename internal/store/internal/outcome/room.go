// Package outcome writes what became of events: journaled, parked, tried without success, or dead. It is the only
// writer of the journal, and of parked events and dead letters as far as the relay decides about them; what people
// decide is package desk's. It reads nothing back but which ids are recorded.
//
//   - S1 What Settle reports as committed survives a crash of the server: synchronous_commit is on, or higher when the
//     server's default is higher.
//   - S2 Parked events and dead letters are written under the epoch that this relay took over, or not at all. Journal
//     rows need no fence: those of a relay that lost the slot are true statements about the topic.
//   - S3 Settling an id again changes nothing.
//
// Tested at the door, by package store, on a real Postgres.
package outcome

import "github.com/cdc-relay/cdc-relay/internal/store/internal/db"

// Writer is the door of the room. All methods may be called from any goroutine.
type Writer struct {
	db      *db.DB
	buffers copyBuffers
}

// New is a Writer on the connections of d.
func New(d *db.DB) *Writer { return &Writer{db: d, buffers: make(copyBuffers, copyBuffersKept)} }
