// Package catalog is about what is in the database: the shape of the outbox, the relay's tables and their migrations,
// the publication, the privileges, and the expressions of the configuration. It reads no event and writes no row of the
// relay.
//
// Tested at the door, by package store, on a real Postgres.
package catalog

import "github.com/cdc-relay/cdc-relay/internal/store/internal/db"

// Catalog is the door of the room. All methods may be called from any goroutine.
type Catalog struct{ db *db.DB }

// New is a Catalog on the connections of d.
func New(d *db.DB) *Catalog { return &Catalog{db: d} }
