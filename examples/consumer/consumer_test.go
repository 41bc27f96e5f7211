package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// run consumes with the group until the number of handled events is right, then stops.
func run(t *testing.T, pg *harness.PG, c Config, want int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- Consume(ctx, c) }()
	harness.Eventually(t, 30*time.Second, "events are handled", func(context.Context) string {
		if got := pg.Query(t, "SELECT to_regclass('events_per_key') IS NOT NULL"); got != "true" {
			return "no table yet"
		}
		if got := pg.Query(t, "SELECT coalesce(sum(events), 0) FROM events_per_key"); got != fmt.Sprint(want) {
			return fmt.Sprintf("%s handled, want %d", got, want)
		}
		return ""
	})
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Consume: %v", err)
	}
}

// Every event is in the topic twice, and everything is read again by a consumer that has lost its offsets. Break it catches:
// an effect that is applied twice (seen to fail without the ids), or not at all.
func TestForcedDuplicatesAreHandledOnce(t *testing.T) {
	pg := harness.Postgres(t)
	broker, err := embedded.StartFakeKafka(embedded.FakeKafkaConfig{Topics: map[string]int32{"outbox.event.order": 3}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { broker.Close() })
	producer, err := kgo.NewClient(kgo.SeedBrokers(broker.Addresses()...), kgo.DefaultProduceTopic("outbox.event.order"))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	const events, keys = 300, 7
	send := func(from, to int) {
		t.Helper()
		for range 2 { // a relay that was killed between sending and recording
			for i := from; i < to; i++ {
				rec := &kgo.Record{Key: fmt.Appendf(nil, "k%d", i%keys), Value: []byte("{}"), Headers: []kgo.RecordHeader{{Key: "id", Value: fmt.Appendf(nil, "e%d", i)}}}
				if err := producer.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	c := Config{DatabaseURL: pg.URL, Brokers: broker.Addresses(), Topics: []string{"outbox.event.order"}, Group: "first"}
	send(0, events/2)
	run(t, pg, c, events/2)
	send(events/2, events)
	run(t, pg, c, events)
	c.Group = "offsets lost"
	send(events, events+1) // the end of what is read: everything before it has been read again
	run(t, pg, c, events+1)
	if wrong := pg.Query(t, fmt.Sprintf("SELECT count(*) FROM events_per_key WHERE events NOT IN (%d, %d)", events/keys, events/keys+1)); wrong != "0" {
		t.Errorf("keys with a wrong number of events: got %s, want 0", wrong)
	}
	if ids := pg.Query(t, "SELECT count(*) FROM processed_event_ids"); ids != fmt.Sprint(events+1) {
		t.Errorf("ids: got %s, want %d", ids, events+1)
	}
}
