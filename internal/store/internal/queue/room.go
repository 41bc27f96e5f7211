// Package queue reads parked events in the order of their lanes, and says which are due. It parks nothing and takes
// nothing out: that is package outcome's. And it keeps the spool: what the stream brought while it could not be sent.
//
// Tested at the door, by package store, on a real Postgres.
package queue

import "github.com/cdc-relay/cdc-relay/internal/store/internal/db"

// Queue is the door of the room. All methods may be called from any goroutine.
type Queue struct{ db *db.DB }

// New is a Queue on the connections of d.
func New(d *db.DB) *Queue { return &Queue{db: d} }
