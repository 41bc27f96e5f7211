package inbox

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	redisclient "github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"

	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/nats"
	"github.com/cdc-relay/cdc-relay/inbox/rabbitmq"
	"github.com/cdc-relay/cdc-relay/inbox/redis"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// broker is one that is not Kafka, with a topic of the test's own.
type broker struct {
	name, addr, topic string
	publish           func(t *testing.T, records ...*kgo.Record)
	server            interface { // nil: other tests use it, too
		Kill9()
		Start(testing.TB)
	}
}

// brokers start them, by name.
var brokers = map[string]func(*testing.T) *broker{
	"nats": newNATS, "redis": newRedis, "rabbitmq-stream": newRabbitStream, "rabbitmq-queue": newRabbitQueue,
}

// eachBroker runs a test with each of the brokers, at once; by day with some only, if they are named.
func eachBroker(t *testing.T, test func(*testing.T, *broker), byDay ...string) {
	t.Helper()
	for name, begin := range brokers {
		if len(byDay) > 0 && !slices.Contains(byDay, name) && count(0, 1) == 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, begin(t))
		})
	}
}

func (b *broker) isQueue() bool { return b.name == "rabbitmq-queue" }

// source is the broker's for a consumer in this process.
func (b *broker) source(t *testing.T) inbox.Source {
	t.Helper()
	s, hangUp, err := sourceOf(b.name, b.addr, b.topic)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hangUp)
	return s
}

// sourceOf connects to a broker as a program does.
func sourceOf(name, addr, topic string) (s inbox.Source, hangUp func(), err error) {
	dial := func() (*amqp.Connection, error) { return amqp.Dial(addr) }
	switch name {
	case "nats":
		nc, err := natsclient.Connect(addr, natsclient.MaxReconnects(-1), natsclient.ReconnectWait(100*time.Millisecond))
		return nats.Subjects(nc, topic), nc.Close, err
	case "redis":
		client := redisclient.NewClient(&redisclient.Options{Addr: addr})
		return redis.Streams(client, topic), func() { _ = client.Close() }, nil
	case "rabbitmq-stream":
		return rabbitmq.Streams(dial, topic), func() {}, nil
	case "rabbitmq-queue":
		return rabbitmq.Queues(dial, topic), func() {}, nil
	}
	return nil, nil, fmt.Errorf("no broker is named %s", name)
}

func newNATS(t *testing.T) *broker {
	t.Helper()
	server := harness.NATS(t)
	b := &broker{name: "nats", addr: server.URL, topic: harness.Unique(t, "order"), server: server}
	js := jetStream(t, b)
	stream := jetstream.StreamConfig{Name: b.topic, Subjects: []string{b.topic}}
	if _, err := js.CreateStream(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	b.publish = func(t *testing.T, records ...*kgo.Record) {
		t.Helper()
		for _, r := range records {
			m := natsclient.NewMsg(b.topic)
			m.Data = r.Value
			m.Header.Set("x-outbox-key", string(r.Key))
			for _, h := range r.Headers {
				m.Header.Set(h.Key, string(h.Value))
			}
			insist(t, func() error { _, err := js.PublishMsg(t.Context(), m); return err })
		}
	}
	return b
}

func jetStream(t *testing.T, b *broker) jetstream.JetStream {
	t.Helper()
	nc, err := natsclient.Connect(b.addr, natsclient.MaxReconnects(-1), natsclient.ReconnectWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// insist does what a broker that is away refuses until it takes it: an event may be there twice then.
func insist(t *testing.T, do func() error) {
	t.Helper()
	harness.Eventually(t, time.Minute, "the broker takes an event", func(context.Context) string {
		if err := do(); err != nil {
			return err.Error()
		}
		return ""
	})
}

func newRedis(t *testing.T) *broker {
	t.Helper()
	server := harness.Redis(t, "--appendfsync", "always")
	b := &broker{name: "redis", addr: server.Addr, topic: harness.Unique(t, "order"), server: server}
	client := redisclient.NewClient(&redisclient.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = client.Close() })
	b.publish = func(t *testing.T, records ...*kgo.Record) {
		t.Helper()
		for _, r := range records {
			values := []any{"key", r.Key}
			for _, h := range r.Headers {
				values = append(values, h.Key, h.Value)
			}
			values = append(values, "payload", r.Value)
			insist(t, func() error {
				return client.XAdd(t.Context(), &redisclient.XAddArgs{Stream: b.topic, Values: values}).Err()
			})
		}
	}
	return b
}

func newRabbitStream(t *testing.T) *broker {
	t.Helper()
	return newRabbit(t, "rabbitmq-stream", amqp.Table{"x-queue-type": "stream"})
}

func newRabbitQueue(t *testing.T) *broker {
	t.Helper()
	return newRabbit(t, "rabbitmq-queue", amqp.Table{"x-queue-type": "quorum"})
}

func newRabbit(t *testing.T, name string, arguments amqp.Table) *broker {
	t.Helper()
	server := harness.RabbitMQ(t)
	b := &broker{name: name, topic: harness.Unique(t, "order")}
	b.addr = "amqp://guest:guest@" + server.Addr + "/?heartbeat=2"
	conn, err := amqp.Dial(b.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	channel, err := conn.Channel()
	if err == nil {
		err = channel.Confirm(false)
	}
	if err == nil {
		_, err = channel.QueueDeclare(b.topic, true, false, false, false, arguments)
	}
	if err != nil {
		t.Fatal(err)
	}
	var one sync.Mutex
	b.publish = func(t *testing.T, records ...*kgo.Record) {
		t.Helper()
		one.Lock()
		defer one.Unlock()
		var last *amqp.DeferredConfirmation
		for _, r := range records {
			m := amqp.Publishing{DeliveryMode: amqp.Persistent, Body: r.Value,
				Headers: amqp.Table{"x-outbox-key": string(r.Key)}}
			for _, h := range r.Headers {
				switch h.Key {
				case "id":
					m.MessageId = string(h.Value)
				case "event_type":
					m.Type = string(h.Value)
				default:
					m.Headers[h.Key] = string(h.Value)
				}
			}
			if last, err = channel.PublishWithDeferredConfirm("", b.topic, true, false, m); err != nil {
				t.Fatal(err)
			}
		}
		if !last.Wait() {
			t.Fatal("RabbitMQ refused a message")
		}
	}
	return b
}

// publishSlowly is produceSlowly for one of these brokers.
func (b *broker) publishSlowly(t *testing.T, events, keys int, d time.Duration) (permanent int) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for n := 0; n < events; {
		<-tick.C
		var records []*kgo.Record
		for ; n < events && time.Since(began) >= d*time.Duration(n)/time.Duration(events); n++ {
			r := event(b.topic, n, keys)
			if n%1000 == 500 {
				r.Value = fmt.Appendf(nil, `{"seq": %d, "fails": "permanent"}`, n)
				permanent++
			}
			records = append(records, r)
		}
		if len(records) > 0 {
			b.publish(t, records...)
		}
	}
	return permanent
}
