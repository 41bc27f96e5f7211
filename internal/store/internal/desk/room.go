// Package desk serves people: the lists of dead letters and parked events, the requests that commands and the API
// leave, and what the relay does to fulfil them; the pause and the breaker, which people lift. Requests may be written
// by anybody; everything else that it writes is fenced by the epoch.
//
// Tested at the door, by package store, on a real Postgres.
package desk

import "github.com/cdc-relay/cdc-relay/internal/store/internal/db"

// Desk is the door of the room. All methods may be called from any goroutine.
type Desk struct{ db *db.DB }

// New is a Desk on the connections of d.
func New(d *db.DB) *Desk { return &Desk{db: d} }
