// Package upkeep works behind the path of the events: it marks or deletes outbox rows whose events are journaled, and
// prunes what nothing needs any more. It never waits for a row, and what a crash makes it forget it does again.
//
// Tested at the door, by package store, on a real Postgres.
package upkeep

import "github.com/cdc-relay/cdc-relay/internal/store/internal/db"

// Upkeep is the door of the room. All methods may be called from any goroutine.
type Upkeep struct{ db *db.DB }

// New is a Upkeep on the connections of d.
func New(d *db.DB) *Upkeep { return &Upkeep{db: d} }
