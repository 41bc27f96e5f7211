package brokers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	client "github.com/nats-io/nats.go"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
)

// loopVariable holds the orders of a process that is a plain loop.
const loopVariable = "BROKERS_LOOP"

// What the loop's author chose.
const (
	loopPause = 10 * time.Millisecond // when there is nothing to publish
	loopBatch = 500
	loopRetry = 250 * time.Millisecond
)

// loop is a usual program without a relay: unpublished rows are locked, published by the broker's own
// client with all that it can have out at a time, and marked when everything is acknowledged, in one transaction. What
// goes wrong is logged and tried again, over new connections.
type loop struct {
	Sink, Broker, Database, Topic string
}

// outgoing is a row.
type outgoing struct{ id, key, kind, payload string }

// publisher publishes rows, waits until all are acknowledged, and is closed after an error.
type publisher interface {
	publish(ctx context.Context, rows []outgoing) error
	close()
}

// obey is the process: it returns its exit code.
func obey(text string) int {
	var l loop
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		fmt.Fprintln(os.Stderr, "loop:", err)
		return 1
	}
	for ctx := context.Background(); ; {
		fmt.Fprintln(os.Stderr, "loop:", l.session(ctx))
		<-time.After(loopRetry)
	}
}

// session publishes until something goes wrong.
func (l loop) session(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, l.Database)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	p, err := l.publisher()
	if err != nil {
		return fmt.Errorf("connect to the broker: %w", err)
	}
	defer p.close()
	for {
		n, err := l.turn(ctx, conn, p)
		if err != nil {
			return err
		}
		if n < loopBatch {
			<-time.After(loopPause)
		}
	}
}

// turn publishes and marks the next rows, and returns how many.
func (l loop) turn(ctx context.Context, conn *pgx.Conn, p publisher) (n int, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT id::text, aggregate_id, event_type, payload::text FROM outbox_events
			WHERE published_at IS NULL ORDER BY seq LIMIT $1 FOR UPDATE SKIP LOCKED`, loopBatch)
		if err != nil {
			return fmt.Errorf("poll: %w", err)
		}
		var all []outgoing
		var ids []string
		var r outgoing
		_, err = pgx.ForEachRow(rows, []any{&r.id, &r.key, &r.kind, &r.payload}, func() error {
			all, ids = append(all, r), append(ids, r.id)
			return nil
		})
		if n = len(all); err != nil || n == 0 {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if err := p.publish(limited, all); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		_, err = tx.Exec(ctx, `UPDATE outbox_events SET published_at = now() WHERE id = ANY($1::uuid[])`, ids)
		return err
	})
	return n, err
}

func (l loop) publisher() (publisher, error) {
	switch l.Sink {
	case "nats":
		nc, err := client.Connect("nats://" + l.Broker)
		if err != nil {
			return nil, err
		}
		js, err := nc.JetStream(client.PublishAsyncMaxPending(loopBatch))
		return toNATS{nc, js, l.Topic}, err
	case "redis-stream":
		return toRedis{redis.NewClient(&redis.Options{Addr: l.Broker, Protocol: 2}), l.Topic}, nil
	case "rabbitmq", "rabbitmq-stream":
		conn, err := amqp.Dial("amqp://guest:guest@" + l.Broker)
		if err != nil {
			return nil, err
		}
		channel, err := conn.Channel()
		if err == nil {
			err = channel.Confirm(false)
		}
		r := toRabbitMQ{conn: conn, channel: channel, queue: l.Topic}
		if l.Sink == "rabbitmq" {
			r.exchange = l.Topic
		}
		return r, err
	case "webhook":
		return toWebhook("http://" + l.Broker + "/hooks/" + l.Topic), nil
	case "sqs":
		return newToSQS(l)
	}
	return nil, fmt.Errorf("%s has no plain loop", l.Sink)
}

type toNATS struct {
	nc      *client.Conn
	js      client.JetStreamContext
	subject string
}

func (p toNATS) close() { p.nc.Close() }

func (p toNATS) publish(ctx context.Context, rows []outgoing) error {
	var acks []client.PubAckFuture
	for _, r := range rows {
		m := client.NewMsg(p.subject)
		m.Header.Set("id", r.id)
		m.Header.Set("x-outbox-key", r.key)
		m.Data = []byte(r.payload)
		ack, err := p.js.PublishMsgAsync(m)
		if err != nil {
			return err
		}
		acks = append(acks, ack)
	}
	for _, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

type toRedis struct {
	client *redis.Client
	stream string
}

func (p toRedis) close() { _ = p.client.Close() }

func (p toRedis) publish(ctx context.Context, rows []outgoing) error {
	_, err := p.client.Pipelined(ctx, func(all redis.Pipeliner) error {
		for _, r := range rows {
			all.XAdd(ctx, &redis.XAddArgs{Stream: p.stream, Values: []string{"id", r.id, "key", r.key, "payload", r.payload}})
		}
		return nil
	})
	return err
}

type toRabbitMQ struct {
	conn            *amqp.Connection
	channel         *amqp.Channel
	exchange, queue string
}

func (p toRabbitMQ) close() { _ = p.conn.Close() }

func (p toRabbitMQ) publish(ctx context.Context, rows []outgoing) error {
	var confirms []*amqp.DeferredConfirmation
	for _, r := range rows {
		c, err := p.channel.PublishWithDeferredConfirmWithContext(ctx, p.exchange, p.queue, false, false, amqp.Publishing{
			MessageId: r.id, Type: r.kind, DeliveryMode: amqp.Persistent, Body: []byte(r.payload),
			Headers: amqp.Table{"x-outbox-key": r.key},
		})
		if err != nil {
			return err
		}
		confirms = append(confirms, c)
	}
	for _, c := range confirms {
		if taken, err := c.WaitContext(ctx); err != nil || !taken {
			return errors.Join(err, errors.New("not confirmed"))
		}
	}
	return nil
}

// toWebhook posts to one URL, 16 at a time.
type toWebhook string

func (toWebhook) close() { http.DefaultClient.CloseIdleConnections() }

func (p toWebhook) publish(ctx context.Context, rows []outgoing) error {
	const lanes = 16
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = lanes
	failed := make([]error, lanes)
	var all sync.WaitGroup
	for lane := range lanes {
		all.Go(func() {
			for i := lane; i < len(rows) && failed[lane] == nil; i += lanes {
				failed[lane] = p.post(ctx, rows[i])
			}
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

func (p toWebhook) post(ctx context.Context, r outgoing) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, string(p), bytes.NewReader([]byte(r.payload)))
	if err != nil {
		return err
	}
	q.Header.Set("Webhook-Id", r.id)
	q.Header.Set("X-Outbox-Key", r.key)
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode/100 != 2 {
		return fmt.Errorf("answer %s: %w", answer.Status, err)
	}
	return nil
}
