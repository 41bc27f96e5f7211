// Command rabbitmq counts the orders of each customer, and each order once, from the work queue that cdc-relay init
// --rabbitmq-topology makes. A message that fails goes through the retry queues, and then to the dead-letter queue.
// docs/brokers/rabbitmq.md explains it.
//
//	cd examples && DATABASE_URL=postgres://app@db/shop RABBITMQ_URL=amqp://app@rabbitmq:5672/ EXCHANGE=outbox.event \
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
	c := consumer{channel, pool, os.Getenv("EXCHANGE"), 0, channel.NotifyReturn(make(chan amqp.Return, 1))}
	if shorter := os.Getenv("RETRY_PAUSE"); shorter != "" { // than the queues', to try it out
		if c.pause, err = time.ParseDuration(shorter); err != nil {
			return err
		}
	}
	deliveries, err := channel.ConsumeWithContext(ctx, c.exchange+".work", "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	for d := range deliveries {
		if err := handle(ctx, pool, d.MessageId, d.Body); err != nil {
			if ctx.Err() != nil || pool.Ping(ctx) != nil {
				return err // that is no fault of the message, which goes back to the queue
			}
			log.Printf("event %s: %v", d.MessageId, err)
			if err := c.later(ctx, d, err); err != nil {
				return err
			}
		}
		if err := d.Ack(false); err != nil {
			return err
		}
	}
	return errors.Join(ctx.Err(), errors.New("the channel is closed")) // whoever starts this program starts it again
}

type consumer struct {
	channel  *amqp.Channel
	pool     *pgxpool.Pool
	exchange string
	pause    time.Duration // 0: the queues'
	returns  <-chan amqp.Return
}

// Headers of a message that has failed. RabbitMQ's own, x-death, are not counted by: newer versions drop those of a
// message that a client publishes again.
const (
	retriesHeader = "x-retries"
	errorHeader   = "x-last-error"
)

// stations are the queues that a failing message goes through.
var stations = []string{"retry.1m", "retry.5m", "retry.15m", "dead"}

// later puts a copy of the message into its next station, and returns when RabbitMQ has it. A crash before the original
// is acknowledged leaves both; whichever succeeds first claims the event's id. Others of its key go before it.
func (c consumer) later(ctx context.Context, d amqp.Delivery, cause error) error {
	retries, _ := d.Headers[retriesHeader].(int32)
	station := stations[min(int(retries), len(stations)-1)]
	if d.Headers == nil {
		d.Headers = amqp.Table{}
	}
	d.Headers[retriesHeader], d.Headers[errorHeader] = retries+1, cause.Error()
	m := amqp.Publishing{
		Headers: d.Headers, ContentType: d.ContentType, CorrelationId: d.CorrelationId, MessageId: d.MessageId, Type: d.Type,
		Timestamp: d.Timestamp, Body: d.Body, DeliveryMode: amqp.Persistent,
	}
	if c.pause > 0 && station != "dead" {
		m.Expiration = strconv.FormatInt(c.pause.Milliseconds(), 10)
	}
	written, err := c.channel.PublishWithDeferredConfirmWithContext(ctx, "", c.exchange+"."+station, true, false, m)
	if err != nil {
		return err
	}
	taken, err := written.WaitContext(ctx)
	if err == nil && !taken {
		err = fmt.Errorf("queue %s.%s refused event %s: it is full", c.exchange, station, d.MessageId)
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
