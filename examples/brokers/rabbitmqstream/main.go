// Command rabbitmqstream counts the orders of each customer, and each order once, from a stream of RabbitMQ, whose
// server keeps no position for it: that is kept in Postgres, in the transactions of the effects.
// docs/brokers/rabbitmq-stream.md explains it.
//
//	cd examples && DATABASE_URL=postgres://app@db/shop RABBITMQ_URL=amqp://app@rabbitmq:5672/ STREAM=outbox.event.order \
//	  go run ./brokers/rabbitmqstream
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
	amqp "github.com/rabbitmq/amqp091-go"
)

const tables = `
CREATE TABLE IF NOT EXISTS processed_event_ids
	(event_id text PRIMARY KEY, processed_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE IF NOT EXISTS stream_positions (stream text PRIMARY KEY, next_offset bigint NOT NULL);
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
	pause, err := time.ParseDuration(cmp.Or(os.Getenv("RETRY_PAUSE"), "1s"))
	if err != nil {
		return err
	}
	conn, err := amqp.Dial(os.Getenv("RABBITMQ_URL")) // streams speak AMQP 0-9-1, too
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	channel, err := conn.Channel()
	if err != nil {
		return err
	}
	const ahead = 100 // messages that are on their way to this consumer
	if err := channel.Qos(ahead, 0, false); err != nil {
		return err
	}
	c := consumer{pool, os.Getenv("STREAM"), pause}
	next, err := c.position(ctx)
	if err != nil {
		return err
	}
	deliveries, err := channel.ConsumeWithContext(ctx, c.stream, "", false, false, false, false,
		amqp.Table{"x-stream-offset": next})
	if err != nil {
		return err
	}
	for d := range deliveries {
		if err := c.handle(ctx, d); err != nil {
			return err
		}
		if err := d.Ack(false); err != nil { // asks for one more; a stream forgets nothing by it
			return err
		}
	}
	return errors.Join(ctx.Err(), errors.New("the channel is closed")) // whoever starts this program starts it again
}

type consumer struct {
	pool   *pgxpool.Pool
	stream string
	pause  time.Duration
}

// position is the offset behind what was handled; 0 is where a stream begins, or its oldest message after that.
func (c consumer) position(ctx context.Context) (next int64, err error) {
	err = c.pool.QueryRow(ctx, `SELECT next_offset FROM stream_positions WHERE stream = $1`, c.stream).Scan(&next)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return next, err
}

// handle returns when the message is handled. One that fails is tried until it does not, and those behind it wait: a
// stream hands nothing out again, and to go on without it would lose it.
func (c consumer) handle(ctx context.Context, d amqp.Delivery) error {
	for {
		err := c.once(ctx, d)
		if err == nil {
			return nil
		}
		log.Printf("event %s: %v", d.MessageId, err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(c.pause):
		}
	}
}

// once commits the event's id, its effect and the position behind it, or nothing of it. The position alone would not
// do: of two consumers, such as one that was frozen and its successor, both can be at the same message.
func (c consumer) once(ctx context.Context, d amqp.Delivery) error {
	offset, known := d.Headers["x-stream-offset"].(int64)
	if d.MessageId == "" || !known {
		return fmt.Errorf("the message has no message-id or offset: is %s a stream of cdc-relay?", c.stream)
	}
	return pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
		claimed, err := tx.Exec(ctx, `INSERT INTO processed_event_ids (event_id) VALUES ($1) ON CONFLICT DO NOTHING`,
			d.MessageId)
		if err == nil && claimed.RowsAffected() > 0 { // else it was handled before
			err = count(ctx, tx, d.Body)
		}
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO stream_positions AS p VALUES ($1, $2)
			ON CONFLICT (stream) DO UPDATE SET next_offset = greatest(p.next_offset, excluded.next_offset)`,
			c.stream, offset+1)
		return err
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
