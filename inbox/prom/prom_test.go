package prom

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/inbox"
)

// Alerts and dashboards name these. Seen to fail with one of them renamed.
func TestTheNamesAreThoseThatAlertsUse(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	m := New()
	c, err := inbox.New(pool, inbox.Config{Name: "n", Brokers: []string{"b"}, Topics: []string{"t"}, Metrics: m})
	if err != nil {
		t.Fatal(err)
	}
	m.Processed("done", "OrderPlaced")
	m.Took("OrderPlaced", time.Millisecond)
	m.EndToEnd(time.Millisecond)
	m.Retried("OrderPlaced")
	m.HandlerNotFound()
	m.Redelivered()
	m.LockWait()
	m.Rebalanced("assigned")
	m.RecordsLost("order", 3, 0)
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.Of(c))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		got = append(got, f.GetName())
	}
	want := []string{
		// Before it runs the lag, the oldest event, parked events and the heartbeat are unknown, and absent.
		"consumer_breaker_open", "consumer_end_to_end_seconds", "consumer_events_processed_total",
		"consumer_handler_not_found_total", "consumer_inflight", "consumer_last_processed_timestamp_seconds",
		"consumer_lock_waits_total", "consumer_max_inflight",
		"consumer_process_duration_seconds", "consumer_rebalances_total", "consumer_records_lost_total",
		"consumer_redelivered_total", "consumer_retry_attempts_total",
	}
	if !slices.Equal(got, want) {
		t.Errorf("names: got %q, want %q", got, want)
	}
}
