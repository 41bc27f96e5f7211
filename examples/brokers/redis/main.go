// Command redis counts the orders of each customer, and each order once, from a stream of Redis: a consumer group whose
// entries are acknowledged after the commit, and claimed from consumers that died. docs/brokers/redis-stream.md
// explains it.
//
//	cd examples && DATABASE_URL=postgres://app@db/shop REDIS_URL=redis://redis:6379/0 STREAM=outbox.event.order \
//	  go run ./brokers/redis
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
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
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

// group is the consumer group; it remembers what was handed out and not acknowledged.
const group = "order-counter"

func run(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, tables); err != nil {
		return err
	}
	options, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		return err
	}
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()
	stream := os.Getenv("STREAM")
	err = client.XGroupCreateMkStream(ctx, stream, group, "0").Err()
	if err != nil && !strings.HasPrefix(err.Error(), "BUSYGROUP") { // it is there
		return err
	}
	idle, err := time.ParseDuration(cmp.Or(os.Getenv("CLAIM_AFTER"), "1m"))
	if err != nil {
		return err
	}
	host, _ := os.Hostname()
	c := consumer{client, pool, stream, fmt.Sprintf("%s-%d", host, os.Getpid()), idle}
	for ctx.Err() == nil {
		if err := c.round(ctx); err != nil && ctx.Err() == nil {
			log.Print(err)
			time.Sleep(time.Second)
		}
	}
	return ctx.Err()
}

type consumer struct {
	client       *redis.Client
	pool         *pgxpool.Pool
	stream, name string
	idle         time.Duration
}

// atOnce is how many entries are taken at a time: all of them must be handled within CLAIM_AFTER, or another consumer
// takes them.
const atOnce = 100

// round handles what others left behind, then what is new. An entry that fails stays with this consumer's name, and is
// claimed again when CLAIM_AFTER is over; others of its key go before it.
func (c consumer) round(ctx context.Context) error {
	for cursor := "0-0"; ; {
		entries, next, err := c.client.XAutoClaim(ctx, &redis.XAutoClaimArgs{Stream: c.stream, Group: group,
			Consumer: c.name, MinIdle: c.idle, Start: cursor, Count: atOnce}).Result()
		if err != nil {
			return fmt.Errorf("claim: %w", err)
		}
		c.handle(ctx, entries)
		if cursor = next; next == "0-0" {
			break
		}
	}
	read, err := c.client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: group, Consumer: c.name,
		Streams: []string{c.stream, ">"}, Count: atOnce, Block: time.Second}).Result()
	if err != nil && !errors.Is(err, redis.Nil) { // nothing new
		return fmt.Errorf("read: %w", err)
	}
	for _, of := range read {
		c.handle(ctx, of.Messages)
	}
	return nil
}

func (c consumer) handle(ctx context.Context, entries []redis.XMessage) {
	for _, e := range entries {
		id, _ := e.Values["id"].(string)
		payload, _ := e.Values["payload"].(string)
		err := handle(ctx, c.pool, id, []byte(payload))
		if err == nil { // an acknowledgement that gets lost brings the entry again, and its id is known then
			err = c.client.XAck(ctx, c.stream, group, e.ID).Err()
		}
		if err != nil {
			log.Printf("entry %s, event %s: %v", e.ID, id, err)
		}
	}
}

// handle commits the event's id with its effect, or neither.
func handle(ctx context.Context, pool *pgxpool.Pool, id string, payload []byte) error {
	if id == "" {
		return errors.New("the entry has no field id: is it an event of cdc-relay?")
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
