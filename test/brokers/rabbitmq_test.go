package brokers_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/test/cutproxy"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// forRabbitMQ are the settings of a relay to exchanges.
func forRabbitMQ(addr string) []any {
	return []any{
		"sink", "rabbitmq", "rabbitmq.url", "amqp://guest:guest@" + addr, "rabbitmq.routing_key", "{event_type}",
	}
}

// onRabbitMQ gives work a channel to the server itself.
func onRabbitMQ(t testing.TB, server *harness.RabbitServer, work func(*amqp.Channel)) {
	t.Helper()
	conn, err := amqp.Dial("amqp://guest:guest@" + server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	channel, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	work(channel)
}

// exchangeOf makes an exchange; bindTo a quorum queue of its name, which takes everything.
func exchangeOf(t testing.TB, c *amqp.Channel, name string) {
	t.Helper()
	if err := c.ExchangeDeclare(name, "topic", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
}

func bindTo(t testing.TB, c *amqp.Channel, name string) {
	t.Helper()
	_, err := c.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
	if err == nil {
		err = c.QueueBind(name, "#", name, false, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// exchanges makes exchanges with a queue each.
func exchanges(t testing.TB, server *harness.RabbitServer, names ...string) {
	t.Helper()
	onRabbitMQ(t, server, func(c *amqp.Channel) {
		for _, name := range names {
			exchangeOf(t, c, name)
			bindTo(t, c, name)
		}
	})
}

// drained takes what is in the queue.
func drained(t testing.TB, server *harness.RabbitServer, queue string) (found []amqp.Delivery) {
	t.Helper()
	onRabbitMQ(t, server, func(c *amqp.Channel) {
		deliveries, err := c.Consume(queue, "", true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		for {
			select {
			case d := <-deliveries:
				found = append(found, d)
			case <-time.After(5 * time.Second): // the queue has no end that could be asked for
				return
			}
		}
	})
	return found
}

// queued are deliveries as the judge wants them.
func queued(all []amqp.Delivery) (found []message) {
	for _, d := range all {
		key, _ := d.Headers["x-outbox-key"].(string)
		found = append(found, message{id: d.MessageId, key: key, payload: d.Body, replayed: d.Headers[replayHeader] == "1"})
	}
	return found
}

// Duplicates were unconfirmed, or not journaled, when something broke. Breaks it catches: an event lost or
// out of order between Postgres and a quorum queue, whatever is killed, and more duplicates than were in flight. Seen
// to fail with a refused or cut wave taken for written.
func TestRabbitMQHasEachEventInOrder(t *testing.T) {
	const unrecorded = 150
	kills := harness.Count(t, "brokers' kills")
	server := harness.RabbitMQ(t)
	proxy := cutproxy.StartPlain(t, server.Addr)
	judge(t, scenario{
		settings: append(forRabbitMQ(proxy.Addr), "limits.max_unrecorded", unrecorded),
		begin:    func(topic string) { exchanges(t, server, topic); grow(t) },
		proxy:    proxy,
		restart:  func() { server.Kill9(); server.Start(t) },
		read:     func(topic string) []message { return queued(drained(t, server, topic)) },
		// Of each kill of the relay, and a wave, which has each key once, for each connection that broke.
		duplicates: func() int { return kills*unrecorded + ((kills+1)/3+proxy.Cuts())*keys },
	})
}

// Breaks it catches: an event lost or out of order when a frozen relay wakes up behind another that took over, and one
// that goes on sending what it had. Seen to fail with the sink's permit always given.
func TestRabbitMQOfAFrozenRelay(t *testing.T) {
	harness.Full(t)
	const unrecorded = 150
	server := harness.RabbitMQ(t)
	judgeFrozen(t, scenario{
		settings:   append(forRabbitMQ(server.Addr), "limits.max_unrecorded", unrecorded),
		begin:      func(topic string) { exchanges(t, server, topic) },
		read:       func(topic string) []message { return queued(drained(t, server, topic)) },
		duplicates: func() int { return unrecorded + keys },
	})
}

// One exchange is missing at first, another has no queue, and one event has a routing key that AMQP has no room for.
// Breaks it catches: an exchange in trouble that holds up another; parked events that come out of order, or not; an
// event that is refused and blocks its key; one that cannot be sent again once the configuration takes it. Seen to fail
// with messages that are not mandatory.
func TestRabbitMQParksRefusesAndReplays(t *testing.T) {
	harness.Full(t)
	server := harness.RabbitMQ(t)
	pg := harness.Postgres(t)
	settings := harness.NewSettings(t, pg, nil).With(forRabbitMQ(server.Addr)...)
	delete(settings, "kafka.brokers")
	delete(settings, "outbox.columns.headers")
	order, invoice, payment := settings.Topic("order"), settings.Topic("invoice"), settings.Topic("payment")
	exchanges(t, server, order)
	onRabbitMQ(t, server, func(c *amqp.Channel) { exchangeOf(t, c, payment) })
	relay := harness.StartRelay(t, settings)
	const n, poisoned = 200, 70 // of each type, 40 of a key
	conn := pg.Connect(t)
	commit := func(from, to int) {
		for number := from; number <= to; number++ {
			if _, err := conn.Exec(t.Context(), `INSERT INTO outbox_events
				(id, aggregate_type, aggregate_id, event_type, payload)
				SELECT gen_random_uuid(), kind, 'key-' || $1 % 5,
					CASE WHEN kind = 'order' AND $1 = $2 THEN repeat('x', 300) ELSE 'changed' END,
					jsonb_build_object('n', $1::int)
				FROM unnest(ARRAY['order', 'invoice', 'payment']) kind`, number, poisoned); err != nil {
				t.Fatal(err)
			}
		}
	}
	commit(1, n/4)
	awaitTroubled(t, relay, 2)
	commit(n/4+1, n/2)
	awaitPublished(t, pg, n/2-1) // of order, but the one that is refused
	awaitParked(t, relay, n/2)
	if code, out, stderr := relay.Run(t, "dlq", "list"); code != 0 || !strings.Contains(out, "INVALID_ROUTING_KEY") {
		t.Errorf("dlq list: exit %d, %s%s; want the event with the long routing key", code, out, stderr)
	}
	exchanges(t, server, invoice)
	onRabbitMQ(t, server, func(c *amqp.Channel) { bindTo(t, c, payment) })
	commit(n/2+1, n)
	awaitPublished(t, pg, 3*n-1)
	relay.Stop(t)
	relay = harness.StartRelay(t, settings.With("rabbitmq.routing_key", "{aggregate_type}"))
	if code, _, stderr := relay.Run(t, "dlq", "replay", "--all", "--timeout", "30s"); code != 0 {
		t.Fatalf("replay: exit %d, %s", code, stderr)
	}
	awaitPublished(t, pg, 3*n)
	relay.Stop(t)
	for _, topic := range []string{order, invoice, payment} {
		all := drained(t, server, topic)
		last := map[string]int{}
		for i, d := range all {
			var body struct {
				N int `json:"n"`
			}
			if err := json.Unmarshal(d.Body, &body); err != nil {
				t.Fatal(err)
			}
			replayed := d.Headers["x-outbox-replay"] == "1"
			if wanted := topic == order && body.N == poisoned; replayed != wanted || wanted && i != len(all)-1 {
				t.Errorf("%s: event %d is message %d of %d, replayed: %v", topic, body.N, i+1, len(all), replayed)
			}
			key, _ := d.Headers["x-outbox-key"].(string)
			if body.N <= last[key] && !replayed {
				t.Errorf("%s, %s: got event %d behind %d", topic, key, body.N, last[key])
			}
			last[key] = max(last[key], body.N)
		}
		if len(all) != n {
			t.Errorf("%s: got %d events, want %d, none twice", topic, len(all), n)
		}
	}
}

// BenchmarkRabbitMQ is a whole relay, a process, before one exchange with one quorum queue. It reports events per
// second, and how long it takes from the begin of a commit to a consumer, at 200 events a second.
//
//	go test -run '^$' -bench RabbitMQ$ -benchtime 60000x ./test/brokers
func BenchmarkRabbitMQ(b *testing.B) {
	server := harness.RabbitMQ(b)
	c := channelOf(b, server)
	measure(b, forRabbitMQ(server.Addr), func(topic string) target {
		exchanges(b, server, topic)
		return queueTarget(b, c, topic)
	})
}

// channelOf is a channel to RabbitMQ that lasts as long as the test.
func channelOf(t testing.TB, server *harness.RabbitServer) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial("amqp://guest:guest@" + server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// queueTarget is a quorum queue.
func queueTarget(b testing.TB, c *amqp.Channel, name string) target {
	return target{
		count: func() int {
			q, err := c.QueueDeclarePassive(name, true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
			if err != nil {
				b.Fatal(err)
			}
			return q.Messages
		},
		follow: func(came func()) {
			if _, err := c.QueuePurge(name, false); err != nil {
				b.Fatal(err)
			}
			deliveries, err := c.Consume(name, "", true, false, false, false, nil)
			if err != nil {
				b.Fatal(err)
			}
			go func() {
				for range deliveries {
					came()
				}
			}()
		},
	}
}
