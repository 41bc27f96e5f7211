// Command sqs counts the orders of each customer, and each order once and in the order of its key, from a FIFO queue of
// Amazon SQS. A message that fails comes again when its visibility timeout ends, and before any later one of its key.
// The queue's redrive policy moves it to a dead-letter queue. docs/brokers/aws.md explains it.
//
//	cd examples && DATABASE_URL=postgres://app@db/shop QUEUE_URL=https://sqs.eu-west-1.amazonaws.com/…/orders.fifo \
//	  go run ./brokers/sqs
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
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
	login, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	c := consumer{pool: pool, client: sqs.NewFromConfig(login), queue: aws.String(os.Getenv("QUEUE_URL"))}
	for {
		if err := c.next(ctx); err != nil { // the supervisor restarts this program
			return err
		}
	}
}

type consumer struct {
	pool   *pgxpool.Pool
	client *sqs.Client
	queue  *string
}

// next handles up to ten messages. Their visibility timeout must be longer than that takes: while one message of a
// group is invisible, SQS hands out no later one of it.
func (c *consumer) next(ctx context.Context) error {
	answer, err := c.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: c.queue, MaxNumberOfMessages: 10, WaitTimeSeconds: 20, MessageAttributeNames: []string{"id"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameMessageGroupId},
	})
	if err != nil {
		return err
	}
	failed := map[string]bool{} // groups
	for _, m := range answer.Messages {
		group := m.Attributes[string(types.MessageSystemAttributeNameMessageGroupId)]
		if failed[group] {
			continue // it comes again behind the one that failed
		}
		id := aws.ToString(m.MessageAttributes["id"].StringValue)
		if err := handle(ctx, c.pool, id, []byte(aws.ToString(m.Body))); err != nil {
			if ctx.Err() != nil || c.pool.Ping(ctx) != nil {
				return err // that is no fault of the message
			}
			log.Printf("event %s: %v", id, err)
			failed[group] = true
			continue
		}
		_, err := c.client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: c.queue, ReceiptHandle: m.ReceiptHandle})
		if err != nil { // as after the visibility timeout: it comes again, and its id is known
			log.Printf("delete event %s: %v", id, err)
		}
	}
	return nil
}

// handle commits the event's id with its effect, or neither.
func handle(ctx context.Context, pool *pgxpool.Pool, id string, payload []byte) error {
	if id == "" {
		return errors.New("the message has no attribute id: is it an event of cdc-relay?")
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
