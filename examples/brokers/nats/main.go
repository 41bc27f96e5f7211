// Command nats counts the orders of each customer, and each order once, from a stream of NATS JetStream: a durable pull
// consumer whose messages are acknowledged after the commit. docs/brokers/nats.md explains it.
//
//	cd examples && DATABASE_URL=postgres://app@db/shop NATS_URL=nats://nats:4222 SUBJECT=outbox.event.order \
//	  go run ./brokers/nats
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const tables = `
CREATE TABLE IF NOT EXISTS processed_event_ids
	(event_id text PRIMARY KEY, processed_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE IF NOT EXISTS orders_of_customer (customer text PRIMARY KEY, orders bigint NOT NULL)`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, tables); err != nil {
		return err
	}
	nc, err := nats.Connect(os.Getenv("NATS_URL"), nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	stream, err := js.StreamNameBySubject(ctx, os.Getenv("SUBJECT"))
	if err != nil {
		return fmt.Errorf("find the stream of the subject %s: %w", os.Getenv("SUBJECT"), err)
	}
	wait, err := time.ParseDuration(cmp.Or(os.Getenv("ACK_WAIT"), "30s"))
	if err != nil {
		return err
	}
	// A message that fails comes again behind others of its key. MaxAckPending: 1 keeps the order, one message at a time.
	consumer, err := js.CreateOrUpdateConsumer(ctx, stream, jetstream.ConsumerConfig{
		Durable: "order-counter", FilterSubject: os.Getenv("SUBJECT"), AckPolicy: jetstream.AckExplicitPolicy, AckWait: wait,
	})
	if err != nil {
		return err
	}
	const atOnce = 100 // all of them must be handled within ACK_WAIT, or they come again
	for ctx.Err() == nil {
		batch, err := consumer.Fetch(atOnce, jetstream.FetchMaxWait(time.Second))
		if err != nil {
			log.Printf("fetch: %v", err)
			time.Sleep(time.Second)
			continue
		}
		for m := range batch.Messages() {
			if err := handle(ctx, pool, m.Headers().Get("id"), m.Data()); err != nil {
				log.Printf("event %s: %v", m.Headers().Get("id"), err)
				_ = m.NakWithDelay(time.Second)
				continue
			}
			_ = m.Ack() // one that gets lost brings the message again, and its id is known then
		}
	}
	return ctx.Err()
}

// handle commits the event's id with its effect, or neither.
func handle(ctx context.Context, pool *pgxpool.Pool, id string, payload []byte) error {
	if id == "" {
		return errors.New("the message has no header id: is it an event of cdc-relay?")
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		claimed, err := tx.Exec(ctx, `INSERT INTO processed_event_ids (event_id) VALUES ($1) ON CONFLICT DO NOTHING`, id)
		if err != nil || claimed.RowsAffected() == 0 { // it was handled before
			return err
		}
		return count(ctx, tx, payload)
	})
}

// count is the effect. It writes by the transaction, and by nothing else.
func count(ctx context.Context, tx pgx.Tx, payload []byte) error {
	var order struct {
		Customer string `json:"customer"`
	}
	if err := json.Unmarshal(payload, &order); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO orders_of_customer AS o VALUES ($1, 1)
		ON CONFLICT (customer) DO UPDATE SET orders = o.orders + 1`, order.Customer)
	return err
}
