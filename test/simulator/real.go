package simulator

import (
	"context"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
)

// reality is a real Postgres with package store beside the made-up tables. Both take each call at the same moment, and
// fail the run where they differ. All methods are called with world.mu held; while they wait, no time passes.
type reality interface {
	// open is a relay's door to both.
	open(t *tables, c store.Config) relay.Tables
	// takes runs a call on the real tables, then on the made-up ones, and compares what they say and what they hold.
	takes(ctx context.Context, t *tables, name string, effect func(*database) error) error
	// orders puts places that are alike into the order in which the real list of a catch-up has them.
	orders(t *tables, places []place)

	// What happens to the server by others than relays.

	begins(tx *transaction) // takes its number
	ends(tx *transaction)   // its rows are visible, or never were
	deletes(r *row)
	asks(r *request)
	remakes(t *table) // in place of the one before
}

// effect applies a call to the tables.
func (t *tables) effect(ctx context.Context, name string, effect func(*database) error) error {
	if t.w.real != nil {
		return t.w.real.takes(ctx, t, name, effect)
	}
	return effect(&t.w.server.db)
}
