package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// Breaks it catches: a face that misses something which a program needs to relay by itself: the tables, the metrics in
// its own registry, its logger. Seen to fail with relay.Init left out.
func TestProgramRelaysItsOwnOutbox(t *testing.T) {
	pg := harness.Postgres(t)
	broker, err := embedded.StartFakeKafka(embedded.FakeKafkaConfig{Topics: map[string]int32{"outbox.event.order": 3}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	cfg := config.Default()
	cfg.Postgres.URL, cfg.Postgres.Slot = pg.URL, harness.Unique(t, "slot")
	driver, err := kafka.New(kafka.Config{Brokers: broker.Addresses()})
	if err != nil {
		t.Fatal(err)
	}
	registry, log := prometheus.NewRegistry(), &harness.Log{}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- Relay(ctx, cfg, driver, slog.New(slog.NewTextHandler(log, nil)), registry) }()
	harness.Eventually(t, 30*time.Second, "the outbox is there", func(context.Context) string {
		return pg.Query(t, "SELECT CASE WHEN to_regclass('outbox_events') IS NULL THEN 'not yet' ELSE '' END")
	})
	pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'order', '7', 'made', jsonb_build_object('n', i) FROM generate_series(1, 20) i`)
	harness.Eventually(t, 30*time.Second, "the program's own metrics count them", func(context.Context) string {
		if got := published(t, registry); got != 20 {
			return fmt.Sprintf("got %v, want 20; log:\n%s", got, log)
		}
		return ""
	})
	stop()
	if err := <-ended; err != nil {
		t.Errorf("got %v, want a stop in order", err)
	}
	var values []string
	harness.Consume(t, broker.Addresses(), []string{"outbox.event.order"}, func(r *kgo.Record) {
		values = append(values, string(r.Value))
	})
	if len(values) != 20 || values[0] != `{"n": 1}` || values[19] != `{"n": 20}` {
		t.Errorf("got %v, want 20 events in their order", values)
	}
	if !strings.Contains(log.String(), "level=INFO") {
		t.Errorf("the program's log has nothing of the relay:\n%s", log)
	}
}

// published is outbox_published_total in the registry.
func published(t *testing.T, registry *prometheus.Registry) (sum float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "outbox_published_total" {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
