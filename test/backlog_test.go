package test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Rows that are older than the slot are published from the table, while new ones are written. Breaks it catches: a row
// between table and stream lost or published by both; a new event of a lane published before its old ones. Seen to fail
// with the table's order dropped, and with the journal not looked up when the stream brings a row of the table again.
func TestCatchUpPublishesOlderRowsOnceAndFirst(t *testing.T) {
	s := newScenario(t, harness.Postgres(t), harness.Kafka(t))
	s.pg.Exec(t, olderOutbox)
	s.load(t, harness.Workload{Aggregates: 50, Events: harness.Count(t, "catch-up rows"), OnlyKept: true}).Wait(t)
	older := s.number(t, s.pg.Query(t, "SELECT count(*) FROM truth"))
	load := s.load(t, harness.Workload{Aggregates: 50, Seed: 2, Rate: 500, OnlyKept: true})
	s.relay.Init(t)
	s.start(t)
	load.WaitCommitted(t, 500, settlePatience)
	load.Stop(t)
	s.settled(t)
	report := s.judge(t, 0)
	t.Logf("%d older rows, %d newer", older, report.Expected-older)
}

// olderOutbox is an outbox that an application had before the relay came.
const olderOutbox = `CREATE TABLE outbox_events (id uuid PRIMARY KEY, seq bigint GENERATED ALWAYS AS IDENTITY,
	aggregate_type text NOT NULL, aggregate_id text, event_type text NOT NULL, payload jsonb, headers jsonb,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp(), published_at timestamptz)`

// One transaction may be of any size. Breaks it catches: a transaction gathered in memory, its position confirmed
// before its last event, its order lost. Seen to fail with nothing sent before the commit: 154 MiB.
func TestOneLargeTransactionTakesBoundedMemory(t *testing.T) {
	harness.Full(t)
	s := startScenario(t, harness.Postgres(t), harness.Kafka(t))
	s.load(t, harness.Workload{Events: 1}).Wait(t)
	s.settled(t)
	rows := harness.Count(t, "rows in one transaction")
	s.largeTransaction(t, rows)
	s.settled(t)
	peak := s.relay.PeakRSS(t)
	t.Logf("%d rows in one transaction: peak memory %d MiB", rows, peak>>20)
	if most := int64(76 << 20); peak > most {
		t.Errorf("peak memory: got %d MiB, want at most %d MiB", peak>>20, most>>20)
	}
	s.judge(t, 0)
}

// largeTransaction commits so many rows at once, with their truth.
func (s *scenario) largeTransaction(t *testing.T, rows int) {
	t.Helper()
	s.pg.Exec(t, fmt.Sprintf(`
		BEGIN;
		CREATE TEMP TABLE t ON COMMIT DROP AS SELECT gen_random_uuid() AS id, n, jsonb_build_object('n', n, 'pad', repeat('x',
		200)) AS payload,
			clock_timestamp() AS created_at FROM generate_series(1, %d) n;
		INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type, payload, headers, created_at)
			SELECT id, 'order', 'big' || n %% 1000, 'changed', payload, '{"traceparent": ""}', created_at FROM t ORDER BY n;
		INSERT INTO truth (id, aggregate_type, aggregate_id, seq, event_type, payload, trace, created_at)
			SELECT id, 'order', 'big' || n %% 1000, n, 'changed', payload, '', created_at FROM t;
		COMMIT`, rows))
}

// A reconnect in the middle of a large transaction makes the server send all of it again. Breaks it catches: what was
// journaled of it sent again; the rest forgotten. Seen to fail with the journal not looked up.
func TestReconnectsInsideALargeTransactionDoubleNothing(t *testing.T) {
	harness.Full(t)
	s := startScenario(t, harness.Postgres(t), harness.Kafka(t))
	s.load(t, harness.Workload{Events: 1}).Wait(t)
	s.settled(t)
	rows := harness.Count(t, "rows in one transaction")
	before := s.relay.Metric(t, "outbox_published_total")
	s.largeTransaction(t, rows)
	const reconnects = 4
	for n := range reconnects {
		harness.Eventually(t, settlePatience, "more of the transaction is published", func(context.Context) string {
			if got, want := s.relay.Metric(t, "outbox_published_total")-before, float64(rows*(n+1)/(reconnects+2)); got < want {
				return fmt.Sprintf("%v events published, want %v", got, want)
			}
			return ""
		})
		restarts := s.relay.Metric(t, "cdc_stream_restarts_total")
		s.pg.Exec(t, fmt.Sprintf("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '%s'",
			s.settings.Slot()))
		harness.Eventually(t, time.Minute, "the stream starts anew", s.restarted(t, restarts))
		s.relay.WaitReady(t, time.Minute)
	}
	s.settled(t)
	s.judge(t, 0)
	t.Logf("%v stream restarts, %v events skipped", s.relay.Metric(t, "cdc_stream_restarts_total"),
		s.relay.Metric(t, "outbox_duplicates_skipped_total"))
}
