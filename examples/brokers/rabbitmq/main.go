// Command rabbitmq counts the orders of each customer, and each order once, from a queue that cdc-relay init
// --rabbitmq-topology creates: that of CONSUMER, a name in rabbitmq.consumers, or, if it is empty, the one behind
// EXCHANGE. A message that fails goes through the retry queues, and then to the dead-letter queue. Every 30 s the
// program logs that it is alive. docs/brokers/rabbitmq.md explains it.
//
//	cd examples && DATABASE_URL=postgres://app@db/shop RABBITMQ_URL=amqp://app@rabbitmq:5672/ CONSUMER=notifications \
//	  go run ./brokers/rabbitmq
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"
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
	conn, err := amqp.Dial(os.Getenv("RABBITMQ_URL"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	channel, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := channel.Confirm(false); err != nil { // of what goes to the retry queues
		return err
	}
	const ahead = 100 // messages that are on their way to this consumer; what it does not acknowledge goes back
	if err := channel.Qos(ahead, 0, false); err != nil {
		return err
	}
	c := consumer{channel: channel, pool: pool, returns: channel.NotifyReturn(make(chan amqp.Return, 1))}
	c.queues()
	if shorter := os.Getenv("RETRY_PAUSE"); shorter != "" { // than the queues', to try it out
		if c.pause, err = time.ParseDuration(shorter); err != nil {
			return err
		}
	}
	heartbeat := 30 * time.Second
	if other := os.Getenv("HEARTBEAT"); other != "" {
		if heartbeat, err = time.ParseDuration(other); err != nil {
			return err
		}
	}
	deliveries, err := channel.ConsumeWithContext(ctx, c.work, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case d, open := <-deliveries:
			if !open { // the supervisor restarts this program
				return errors.Join(ctx.Err(), errors.New("the channel is closed"))
			}
			if err := c.take(ctx, d); err != nil {
				return err
			}
		case <-beat.C: // not beside the loop: a handler that hangs ends the heartbeat
			log.Printf("alive: queue %s, %d messages handled, %d failed", c.work, c.handled, c.failed)
		}
	}
}

type consumer struct {
	channel *amqp.Channel
	pool    *pgxpool.Pool
	returns <-chan amqp.Return
	pause   time.Duration // 0: the queues'

	work     string   // the queue
	stations []string // the queues that a failing message goes through; the last one keeps it

	handled, failed int
}

// queues names them as cdc-relay does.
func (c *consumer) queues() {
	retries := "1m,5m,15m"
	if other := os.Getenv("RETRIES"); other != "" {
		retries = other
	}
	name, dead := os.Getenv("CONSUMER"), ".dlq"
	c.work = name
	if name == "" {
		name, dead = os.Getenv("EXCHANGE"), ".dead"
		c.work = name + ".work"
	}
	for _, pause := range strings.Split(retries, ",") {
		c.stations = append(c.stations, name+".retry."+pause)
	}
	c.stations = append(c.stations, name+dead)
}

// take handles a message, or puts it off, and acknowledges it.
func (c *consumer) take(ctx context.Context, d amqp.Delivery) error {
	err := handle(ctx, c.pool, d.MessageId, d.Body)
	switch {
	case err == nil:
		c.handled++
	case ctx.Err() != nil || c.pool.Ping(ctx) != nil:
		return err // that is no fault of the message, which goes back to the queue
	default:
		c.failed++
		log.Printf("event %s: %v", d.MessageId, err)
		if err := c.later(ctx, d, err); err != nil {
			return err
		}
	}
	return d.Ack(false)
}

// Headers of a message that has failed. RabbitMQ's own, x-death, are not counted by: newer versions drop those of a
// message that a client publishes again.
const (
	retriesHeader = "x-retries"
	errorHeader   = "x-last-error"
)

// later puts a copy of the message into its next station, and returns when RabbitMQ has it. A crash before the original
// is acknowledged leaves both; whichever succeeds first claims the event's id. Others of its key go before it.
func (c *consumer) later(ctx context.Context, d amqp.Delivery, cause error) error {
	retries, _ := d.Headers[retriesHeader].(int32)
	last := len(c.stations) - 1
	station := c.stations[min(int(retries), last)]
	if d.Headers == nil {
		d.Headers = amqp.Table{}
	}
	d.Headers[retriesHeader], d.Headers[errorHeader] = retries+1, cause.Error()
	m := amqp.Publishing{
		Headers: d.Headers, ContentType: d.ContentType, CorrelationId: d.CorrelationId, MessageId: d.MessageId, Type: d.Type,
		Timestamp: d.Timestamp, Body: d.Body, DeliveryMode: amqp.Persistent,
	}
	if c.pause > 0 && station != c.stations[last] {
		m.Expiration = strconv.FormatInt(c.pause.Milliseconds(), 10)
	}
	written, err := c.channel.PublishWithDeferredConfirmWithContext(ctx, "", station, true, false, m)
	if err != nil {
		return err
	}
	taken, err := written.WaitContext(ctx)
	if err == nil && !taken {
		err = fmt.Errorf("queue %s refused event %s: it is full", station, d.MessageId)
	}
	select {
	case r := <-c.returns: // it comes before the confirm, which it gets all the same
		err = fmt.Errorf("there is no queue %s for event %s: %s", r.RoutingKey, d.MessageId, r.ReplyText)
	default:
	}
	return err
}

// handle commits the event's id with its effect, or neither.
func handle(ctx context.Context, pool *pgxpool.Pool, id string, payload []byte) error {
	if id == "" {
		return errors.New("the message has no message-id: is it an event of cdc-relay?")
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
