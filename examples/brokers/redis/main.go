// Command redis counts the orders of each customer, and each order once, from a stream of Redis. What fails is parked
// with its key, and then a dead letter. docs/inbox.md explains it.
//
//	cd examples && DATABASE_URL=postgres://app@db/shop REDIS_URL=redis://redis:6379 STREAM=outbox.event.order \
//	  go run ./brokers/redis
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/cdc-relay/cdc-relay/inbox"
	redisinbox "github.com/cdc-relay/cdc-relay/inbox/redis"
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
	options, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		return err
	}
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()
	c, err := inbox.New(pool, inbox.Config{Name: "order-counter", Source: redisinbox.Streams(client, os.Getenv("STREAM"))})
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
