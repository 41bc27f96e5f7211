package brokers_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/test/cutproxy"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// forStreams are the settings of a relay to streams of RabbitMQ.
func forStreams(addr string) []any {
	return []any{"sink", "rabbitmq-stream", "rabbitmq.stream_url", "rabbitmq-stream://guest:guest@" + addr}
}

func makeStream(t testing.TB, server *harness.RabbitServer, name string) {
	t.Helper()
	onRabbitMQ(t, server, func(c *amqp.Channel) {
		if _, err := c.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": "stream"}); err != nil {
			t.Fatal(err)
		}
	})
}

// streamed reads a stream from its beginning until nothing came for a while.
func streamed(t testing.TB, server *harness.RabbitServer, name string) (found []message) {
	t.Helper()
	harness.Eventually(t, 2*time.Minute, "a server that was killed has the stream again", func(context.Context) string {
		conn, err := amqp.Dial("amqp://guest:guest@" + server.Addr)
		if err != nil {
			return err.Error()
		}
		defer conn.Close()
		c, err := conn.Channel()
		if err == nil {
			err = c.Qos(1000, 0, false)
		}
		if err == nil {
			_, err = c.Consume(name, "", false, false, false, false, amqp.Table{"x-stream-offset": "first"})
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
	onRabbitMQ(t, server, func(c *amqp.Channel) {
		if err := c.Qos(1000, 0, false); err != nil {
			t.Fatal(err)
		}
		deliveries, err := c.Consume(name, "", false, false, false, false, amqp.Table{"x-stream-offset": "first"})
		if err != nil {
			t.Fatal(err)
		}
		for {
			select {
			case d := <-deliveries:
				if err := d.Ack(false); err != nil {
					t.Fatal(err)
				}
				found = append(found, queued([]amqp.Delivery{d})...)
			case <-time.After(5 * time.Second): // the stream has no end that could be asked for
				return
			}
		}
	})
	return found
}

// settle has the server make its first stream, and gives it time: RabbitMQ 3.10 that is killed a moment after that has
// forgotten who coordinates its streams, and none of them is ever available again.
func settle(t testing.TB, server *harness.RabbitServer) {
	t.Helper()
	makeStream(t, server, harness.Unique(t, "first"))
	grow(t)
}

// grow gives a server that has just made its first queue or stream three seconds. RabbitMQ 3.10 that is killed within
// the first second or two is never whole again: channels that publish to that queue hang in the server.
func grow(t testing.TB) {
	t.Helper()
	made := time.Now()
	harness.Eventually(t, 10*time.Second, "what the server made is three seconds old", func(context.Context) string {
		if age := time.Since(made); age < 3*time.Second {
			return age.String()
		}
		return ""
	})
}

// Breaks it catches: an event lost, doubled or out of order between Postgres and a stream, whatever is killed. Seen to
// fail with the driver's Tail left out.
func TestRabbitMQStreamHasEachEventOnceInOrder(t *testing.T) {
	server := harness.RabbitMQ(t)
	settle(t, server)
	proxy := cutproxy.StartPlain(t, server.StreamAddr)
	judge(t, scenario{
		settings: append(forStreams(proxy.Addr), "rabbitmq_stream.create_streams.enabled", true),
		proxy:    proxy,
		restart:  func() { server.Kill9(); server.Start(t) },
		read:     func(topic string) []message { return streamed(t, server, topic) },
	})
}

// Breaks it catches: an event lost, doubled or out of order when a frozen relay wakes up behind another that took over.
// Seen to fail with the driver's Tail left out.
func TestRabbitMQStreamOfAFrozenRelay(t *testing.T) {
	harness.Full(t)
	server := harness.RabbitMQ(t)
	judgeFrozen(t, scenario{
		settings: append(forStreams(server.StreamAddr), "rabbitmq_stream.create_streams.enabled", true),
		read:     func(topic string) []message { return streamed(t, server, topic) },
	})
}

// BenchmarkRabbitMQStream is a whole relay, a process, before one stream. It reports events per second, and how long
// it takes from the begin of a commit to a consumer, at 200 events a second.
//
//	go test -run '^$' -bench RabbitMQStream -benchtime 200000x ./test/brokers
func BenchmarkRabbitMQStream(b *testing.B) {
	server := harness.RabbitMQ(b)
	c := channelOf(b, server)
	measure(b, forStreams(server.StreamAddr), func(topic string) target {
		makeStream(b, server, topic)
		return streamTarget(b, c, topic)
	})
}

// streamTarget is a stream of RabbitMQ, read by AMQP from its first message on: what the server says of a stream's
// length is seconds old.
func streamTarget(b testing.TB, c *amqp.Channel, name string) target {
	b.Helper()
	const together = 100 // messages that are acknowledged at once
	if err := c.Qos(10*together, 0, false); err != nil {
		b.Fatal(err)
	}
	deliveries, err := c.Consume(name, "", false, false, false, false, amqp.Table{"x-stream-offset": "first"})
	if err != nil {
		b.Fatal(err)
	}
	var read atomic.Int64
	var follower atomic.Pointer[func()]
	go func() {
		for d := range deliveries {
			came := follower.Load()
			if came != nil || d.DeliveryTag%together == 0 {
				_ = d.Ack(true)
			}
			if read.Add(1); came != nil {
				(*came)()
			}
		}
	}()
	return target{
		count:  func() int { return int(read.Load()) },
		follow: func(came func()) { follower.Store(&came) },
	}
}
