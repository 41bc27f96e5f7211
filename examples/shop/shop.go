// Package shop is a worked example of both ends: an order service that changes a row and emits an event in one
// transaction, and a billing service that consumes it and writes an invoice, each order once and each customer's orders
// in their order. Its test goes from COMMIT to COMMIT, with a relay and a broker between.
package shop

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/emit"
	"github.com/cdc-relay/cdc-relay/inbox"
)

// OrderTables and BillingTables are the two services' own.
const (
	OrderTables   = `CREATE TABLE orders (id text PRIMARY KEY, customer text NOT NULL, cents bigint NOT NULL)`
	BillingTables = `CREATE TABLE invoice (
		number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, order_id text NOT NULL, customer text NOT NULL,
		cents bigint NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp())`
)

// OrderPlaced reports that a customer has ordered.
type OrderPlaced struct {
	Order    string `json:"order"`
	Customer string `json:"customer"`
	Cents    int64  `json:"cents"`
}

// PlaceOrder is the order service's transaction: the order and its event, both or neither. It returns the event's id.
func PlaceOrder(ctx context.Context, db *pgxpool.Pool, order, customer string, cents int64) (id string, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO orders VALUES ($1, $2, $3)", order, customer, cents)
		if err != nil {
			return fmt.Errorf("insert order %s: %w", order, err)
		}
		id, err = emit.Emit(ctx, tx, emit.Event{
			AggregateType: "order", AggregateID: customer, Type: "OrderPlaced",
			Payload: OrderPlaced{order, customer, cents},
		})
		return err
	})
	return id, err
}

// Bill registers the billing service's handler.
func Bill(c *inbox.Consumer) {
	inbox.On(c, "OrderPlaced", func(ctx context.Context, tx pgx.Tx, e inbox.Event[OrderPlaced]) error {
		if e.Payload.Cents <= 0 {
			return inbox.Permanent(fmt.Errorf("order %s is of %d cents", e.Payload.Order, e.Payload.Cents))
		}
		_, err := tx.Exec(ctx, "INSERT INTO invoice (order_id, customer, cents) VALUES ($1, $2, $3)",
			e.Payload.Order, e.Payload.Customer, e.Payload.Cents)
		return err
	})
}
