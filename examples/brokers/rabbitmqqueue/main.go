// Command rabbitmqqueue counts the orders of each customer, and each order once and in the order of its customer, from
// a queue of RabbitMQ. What fails is parked in Postgres with its key, and then a dead letter: it needs no retry queues.
// docs/inbox.md explains it.
//
//	cd examples && DATABASE_URL=postgres://app@db/shop RABBITMQ_URL=amqp://app@rabbitmq:5672/ QUEUE=orders \
//	  go run ./brokers/rabbitmqqueue
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/rabbitmq"
)

// OrderPlaced is the payload that this consumer needs of it.
type OrderPlaced struct {
	Customer string `json:"customer"`
}

// count is the effect. It is committed together with the event's id, or neither is.
func count(ctx context.Context, tx pgx.Tx, e inbox.Event[OrderPlaced]) error {
	_, err := tx.Exec(ctx, `INSERT INTO orders_of_customer AS o VALUES ($1, 1)
		ON CONFLICT (customer) DO UPDATE SET orders = o.orders + 1`, e.Payload.Customer)
	return err
}

func run(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	const table = `CREATE TABLE IF NOT EXISTS orders_of_customer (customer text PRIMARY KEY, orders bigint NOT NULL)`
	if _, err := pool.Exec(ctx, table); err != nil {
		return err
	}
	dial := func() (*amqp.Connection, error) { return amqp.Dial(os.Getenv("RABBITMQ_URL")) }
	c, err := inbox.New(pool, inbox.Config{Name: "order-counter", Source: rabbitmq.Queues(dial, os.Getenv("QUEUE"))})
	if err != nil {
		return err
	}
	inbox.On(c, "OrderPlaced", count)
	return c.Run(ctx)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}
