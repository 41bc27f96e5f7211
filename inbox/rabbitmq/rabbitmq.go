// Package rabbitmq lets an inbox read queues and streams of RabbitMQ. It is separate from package inbox so that
// consumers of Kafka do not link the client of RabbitMQ.
//
//	dial := func() (*amqp.Connection, error) { return amqp.Dial(url) }
//	c, err := inbox.New(pool, inbox.Config{Name: "billing", Source: rabbitmq.Queues(dial, "billing")})
//
// A queue is read by one process, and a message leaves it when its event is decided: done, parked or dead. So a
// restored database is not refilled. Declare quorum queues with x-single-active-consumer, or a process that freezes
// just before it begins to read may disturb the order of keys. On RabbitMQ 4 set x-delivery-limit to -1, or a message
// that was in memory in 20 crashes leaves the queue without its effect. A stream is read like a topic, from the
// position in the database.
package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/internal/source"
)

// Headers of the relay's messages beside the event's.
const (
	keyHeader       = "x-outbox-key"
	tombstoneHeader = "x-outbox-tombstone"
	offsetHeader    = "x-stream-offset"
)

// Queues returns a source that reads queues. It calls dial for each queue, and again when a connection is lost.
func Queues(dial func() (*amqp.Connection, error), queues ...string) inbox.Source {
	return &named{dial, queues, true}
}

// Streams returns a source that reads streams. It calls dial as [Queues] does.
func Streams(dial func() (*amqp.Connection, error), streams ...string) inbox.Source {
	return &named{dial, streams, false}
}

type named struct {
	dial  func() (*amqp.Connection, error)
	names []string
	queue bool
}

func (s *named) System() string   { return "rabbitmq" }
func (s *named) Topics() []string { return s.names }
func (s *named) Queue() bool      { return s.queue }

func (s *named) Problem() error {
	switch {
	case s.dial == nil:
		return errors.New("dial is nil: pass a function that calls amqp.Dial")
	case len(s.names) == 0 || slices.Contains(s.names, ""):
		return errors.New("no queue or stream is named, or one has an empty name")
	}
	return nil
}

const (
	ahead = 1000 // messages that RabbitMQ sends before earlier ones are acknowledged
	most  = 500  // in one batch
)

func (s *named) Open(_ context.Context, name string) (source.Topic, error) {
	conn, err := s.dial()
	if err != nil {
		return nil, fmt.Errorf("connect to RabbitMQ: %w", err)
	}
	r := reader{name: name, conn: conn}
	if r.channel, err = conn.Channel(); err == nil {
		err = r.channel.Qos(ahead, 0, false)
	}
	if err == nil {
		r.asking, err = conn.Channel()
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("open a channel for %s: %w", name, err)
	}
	if !s.queue {
		return &stream{reader: r}, nil
	}
	return &queue{reader: r, first: time.Now().UnixMicro()}, nil
}

// reader is shared by queues and streams.
type reader struct {
	name       string
	conn       *amqp.Connection
	channel    *amqp.Channel // of the deliveries
	asking     *amqp.Channel // another one, which an error closes
	deliveries <-chan amqp.Delivery
}

// take waits for deliveries.
func (r *reader) take(ctx context.Context) (batch []amqp.Delivery, err error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case d, open := <-r.deliveries:
		if !open {
			return nil, fmt.Errorf("read %s: RabbitMQ has closed the channel, or the queue was deleted", r.name)
		}
		batch = append(batch, d)
	}
	for len(batch) < most {
		select {
		case d, open := <-r.deliveries:
			if !open {
				return batch, nil // the next call says so
			}
			batch = append(batch, d)
		default:
			return batch, nil
		}
	}
	return batch, nil
}

// look asks how many messages the server has that no one was sent, and how many consumers.
func (r *reader) look() (amqp.Queue, error) {
	q, err := r.asking.QueueDeclarePassive(r.name, true, false, false, false, nil)
	if err != nil {
		return q, fmt.Errorf("look at %s: %w", r.name, err)
	}
	return q, nil
}

func (r *reader) Close() { _ = r.conn.Close() }

// record undoes what the relay does to make a message.
func (r *reader) record(d amqp.Delivery, offset int64) *kgo.Record {
	made := &kgo.Record{Topic: r.name, Offset: offset, Value: d.Body, Timestamp: d.Timestamp}
	if made.Value == nil {
		made.Value = []byte{}
	}
	if made.Timestamp.IsZero() {
		made.Timestamp = time.Now()
	}
	if d.MessageId != "" {
		source.Set(made, "id", []byte(d.MessageId))
	}
	if d.Type != "" {
		source.Set(made, "event_type", []byte(d.Type))
	}
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		value := text(d.Headers[name])
		switch name {
		case keyHeader:
			made.Key = value
		case tombstoneHeader:
			made.Value = nil
		case offsetHeader:
		case "id", "event_type":
			made.Headers = slices.DeleteFunc(made.Headers, func(h kgo.RecordHeader) bool { return h.Key == name })
			source.Set(made, name, value)
		default:
			source.Set(made, name, value)
		}
	}
	return made
}

func text(v any) []byte {
	switch v := v.(type) {
	case nil:
		return nil
	case string:
		return []byte(v)
	case []byte:
		return v
	}
	return fmt.Append(nil, v)
}
