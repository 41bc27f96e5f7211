// Package lease keeps what is known of a slot: its state and phase, who took it over and when, how far its topics are
// journaled; and it asks the server about the slot and about transactions that are still open. It touches no event.
//
// Only the owner of the slot changes its state: every write but those that come before an owner (Register,
// BeginCatchUp) is fenced by the epoch.
//
// Tested at the door, by package store, on a real Postgres.
package lease

import "github.com/cdc-relay/cdc-relay/internal/store/internal/db"

// Lease is the door of the room. All methods may be called from any goroutine.
type Lease struct{ db *db.DB }

// New is a Lease on the connections of d.
func New(d *db.DB) *Lease { return &Lease{db: d} }
