package inbox_test

import (
	"context"
	"errors"
	"log"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/inbox"
)

type orderPlaced struct {
	Customer string `json:"customer"`
	Total    int    `json:"total"`
}

// The handler's effect and the event's id are committed together, so that the effect happens once.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, "postgres://billing@db/billing")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	c, err := inbox.New(pool, inbox.Config{
		Name: "billing", Brokers: []string{"kafka:9092"}, Topics: []string{"outbox.event.order"},
	})
	if err != nil {
		log.Print(err)
		return
	}
	inbox.On(c, "OrderPlaced", func(ctx context.Context, tx pgx.Tx, e inbox.Event[orderPlaced]) error {
		_, err := tx.Exec(ctx, "INSERT INTO invoice (customer, total) VALUES ($1, $2)", e.Payload.Customer, e.Payload.Total)
		return err
	})
	if err := c.Run(ctx); err != nil {
		log.Print(err)
	}
}

// An error that no further attempt cures makes the event a dead letter at once.
func ExamplePermanent() {
	refuse := func(_ context.Context, _ pgx.Tx, e inbox.Event[orderPlaced]) error {
		if e.Payload.Total < 0 {
			return inbox.Permanent(errors.New("the total is negative"))
		}
		return nil
	}
	_ = refuse
}
