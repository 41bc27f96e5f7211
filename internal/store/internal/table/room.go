// Package table reads the outbox table itself: the rows that a catch-up publishes, those that nothing records, and
// those of an audit. It never changes a row of it; the lists that it makes are the relay's own.
//
// Tested at the door, by package store, on a real Postgres.
package table

import "github.com/cdc-relay/cdc-relay/internal/store/internal/db"

// Reader is the door of the room. All methods may be called from any goroutine.
type Reader struct{ db *db.DB }

// New is a Reader on the connections of d.
func New(d *db.DB) *Reader { return &Reader{db: d} }
