package brokers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// troubled is a broker with one topic in trouble at first.
type troubled struct {
	settings []any
	begin    func(order, invoice string) // makes the first, and leaves the other in trouble
	mend     func(invoice string)
	read     func(topic string) []message
}

// awaitTroubled waits until the relay says of so many topics that they are in trouble. What comes then is parked, while
// what was sent before may go on being tried.
func awaitTroubled(t *testing.T, relay *harness.Relay, topics int) {
	t.Helper()
	harness.Eventually(t, time.Minute, "topics are said to be in trouble", func(context.Context) string {
		code, body := relay.Get(t, "/api/v1/status")
		if got := strings.Count(body, `"reason": "topic"`); got != topics {
			return fmt.Sprintf("%d of them, want %d: %d %s", got, topics, code, body)
		}
		return ""
	})
}

func awaitParked(t *testing.T, relay *harness.Relay, events float64) {
	t.Helper()
	harness.Eventually(t, time.Minute, "events of topics in trouble are parked", func(ctx context.Context) string {
		parked, err := relay.AskMetric(ctx, "outbox_parked_events")
		if err != nil || parked < events {
			return fmt.Sprint(parked, err)
		}
		return ""
	})
}

// judgeTrouble publishes to two topics. One is in trouble at first; of the other one event is too large, and replayed
// when it is not any more.
func judgeTrouble(t *testing.T, s troubled) {
	t.Helper()
	const n, poisoned = 200, 70 // of each type, 40 of a key
	pg := harness.Postgres(t)
	settings := scenario{settings: s.settings}.prepare(t, pg).With("limits.max_event_bytes", "4KiB")
	order, invoice := settings.Topic("order"), settings.Topic("invoice")
	s.begin(order, invoice)
	relay := harness.StartRelay(t, settings)
	conn := pg.Connect(t)
	commit := func(from, to int) {
		for number := from; number <= to; number++ {
			if _, err := conn.Exec(t.Context(), `INSERT INTO outbox_events
				(id, aggregate_type, aggregate_id, event_type, payload)
				SELECT gen_random_uuid(), kind, 'key-' || $1 % 5, 'changed', jsonb_build_object('n', $1::int, 'filler',
					CASE WHEN kind = 'order' AND $1 = $2 THEN repeat('x', 10000) ELSE '' END)
				FROM unnest(ARRAY['order', 'invoice']) kind`, number, poisoned); err != nil {
				t.Fatal(err)
			}
		}
	}
	commit(1, n/4)
	awaitTroubled(t, relay, 1)
	commit(n/4+1, n/2)
	awaitPublished(t, pg, n/2-1) // of order, but the one that is too large
	awaitParked(t, relay, n/4)
	if code, out, stderr := relay.Run(t, "dlq", "list"); code != 0 || !strings.Contains(out, "TOO_LARGE") {
		t.Errorf("dlq list: exit %d, %s%s; want the event that is too large", code, out, stderr)
	}
	s.mend(invoice)
	commit(n/2+1, n)
	awaitPublished(t, pg, 2*n-1)
	relay.Stop(t)
	relay = harness.StartRelay(t, settings.With("limits.max_event_bytes", "1MiB"))
	if code, _, stderr := relay.Run(t, "dlq", "replay", "--all", "--timeout", "30s"); code != 0 {
		t.Fatalf("replay: exit %d, %s", code, stderr)
	}
	awaitPublished(t, pg, 2*n)
	relay.Stop(t)
	for _, topic := range []string{order, invoice} {
		all := s.read(topic)
		last, place := map[string]int{}, map[string]int{} // of each key
		for i, m := range all {
			place[m.key] = i
		}
		for i, m := range all {
			var body struct{ N int }
			if err := json.Unmarshal(m.payload, &body); err != nil {
				t.Fatal(err)
			}
			if wanted := topic == order && body.N == poisoned; m.replayed != wanted || wanted && i != place[m.key] {
				t.Errorf("%s: event %d is message %d of %d, replayed: %v", topic, body.N, i+1, len(all), m.replayed)
			}
			if body.N <= last[m.key] && !m.replayed {
				t.Errorf("%s, %s: got event %d behind %d", topic, m.key, body.N, last[m.key])
			}
			last[m.key] = max(last[m.key], body.N)
		}
		if len(all) != n {
			t.Errorf("%s: got %d events, want %d, none twice", topic, len(all), n)
		}
	}
}

// One queue's key is something else at first, and one event is too large. Breaks it catches: a queue in trouble that
// holds up another; parked events that come out of order, or not; a dead letter that cannot be sent again. Seen to fail
// with WRONGTYPE the cluster's trouble.
func TestBullMQParksRefusesAndReplays(t *testing.T) {
	harness.Full(t)
	server := harness.Redis(t)
	reader := newReader(t, server)
	var w *worker
	judgeTrouble(t, troubled{
		settings: forBullMQ(server.Addr, "bullmq"),
		begin: func(order, invoice string) {
			w = newWorker(t, server, "bullmq", order, invoice)
			if err := reader.Set(t.Context(), "bull:"+invoice+":wait", "x", 0).Err(); err != nil {
				t.Fatal(err)
			}
		},
		mend: func(invoice string) {
			if err := reader.Del(t.Context(), "bull:"+invoice+":wait").Err(); err != nil {
				t.Fatal(err)
			}
			w.script.Start()
		},
		read: func(topic string) []message { return worked(w.all(reader, topic)) },
	})
}

// The same with a key that is no stream. Breaks it catches: the same. Seen to fail with WRONGTYPE taken for the
// cluster's trouble.
func TestRedisStreamParksRefusesAndReplays(t *testing.T) {
	harness.Full(t)
	server := harness.Redis(t)
	reader := newReader(t, server)
	judgeTrouble(t, troubled{
		settings: []any{"sink", "redis-stream", "redis.url", "redis://" + server.Addr},
		begin: func(_, invoice string) {
			if err := reader.Set(t.Context(), invoice, "x", 0).Err(); err != nil {
				t.Fatal(err)
			}
		},
		mend: func(invoice string) {
			if err := reader.Del(t.Context(), invoice).Err(); err != nil {
				t.Fatal(err)
			}
		},
		read: func(topic string) []message { return entriesOf(t, reader, topic) },
	})
}

// The same with a subject that no stream takes. Breaks it catches: the same. Seen to fail with a subject without a
// stream taken for the cluster's trouble.
func TestNATSParksRefusesAndReplays(t *testing.T) {
	harness.Full(t)
	server := harness.NATS(t)
	nc := natsReader(t, server.URL)
	takes := func(subject string) {
		js, err := nc.JetStream()
		if err == nil {
			_, err = js.AddStream(&client.StreamConfig{Name: harness.Unique(t, "stream"), Subjects: []string{subject}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	judgeTrouble(t, troubled{
		settings: []any{"sink", "nats", "nats.url", "nats://" + server.Addr},
		begin:    func(order, _ string) { takes(order) },
		mend:     takes,
		read:     func(topic string) []message { return messagesOf(t, nc, topic) },
	})
}

// The same with a stream that is missing. Breaks it catches: the same. Seen to fail with a missing stream taken for
// trouble of the cluster.
func TestRabbitMQStreamParksRefusesAndReplays(t *testing.T) {
	harness.Full(t)
	server := harness.RabbitMQ(t)
	judgeTrouble(t, troubled{
		settings: forStreams(server.StreamAddr),
		begin:    func(order, _ string) { makeStream(t, server, order) },
		mend:     func(invoice string) { makeStream(t, server, invoice) },
		read:     func(topic string) []message { return streamed(t, server, topic) },
	})
}
