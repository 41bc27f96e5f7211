package emit_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/cdc-relay/cdc-relay/emit"
)

// The event is committed with the order, or neither is.
func ExampleEmitSQL() {
	place := func(ctx context.Context, db *sql.DB, customer string, total int) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		var id string
		err = tx.QueryRowContext(ctx, "INSERT INTO orders (customer, total) VALUES ($1, $2) RETURNING id", customer, total).
			Scan(&id)
		if err != nil {
			return err
		}
		if _, err := emit.EmitSQL(ctx, tx, emit.Event{
			AggregateType: "order", AggregateID: id, Type: "OrderPlaced",
			Payload: map[string]any{"customer": customer, "total": total},
		}); err != nil {
			return fmt.Errorf("emit OrderPlaced: %w", err)
		}
		return tx.Commit()
	}
	_ = place
}
