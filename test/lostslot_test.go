package test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// The publication loses the table under load. Breaks it catches: a relay that notices late, and goes on to confirm; rows
// of the time until the repair that do not arrive, or arrive behind later ones.
func TestDriftUnderLoadLosesNothingAndKeepsTheOrder(t *testing.T) {
	s := startScenario(t, harness.Postgres(t), harness.Kafka(t), "drift.interval", "2s")
	load := s.load(t, harness.Workload{Rate: 500, OnlyKept: true})
	load.WaitCommitted(t, 500, time.Minute)
	publication := s.settings["postgres.publication"].(string)
	s.pg.Exec(t, "ALTER PUBLICATION "+publication+" DROP TABLE outbox_events")
	began := time.Now()
	harness.Eventually(t, time.Minute, "halted", func(context.Context) string {
		if s.relay.Metric(t, "cdc_relay_halted", `code="publication"`) == 1 {
			return ""
		}
		return "not yet"
	})
	t.Logf("halted %v after the publication had changed; it looks every 2 s", time.Since(began).Round(time.Millisecond))
	load.WaitCommitted(t, 300, time.Minute)
	s.pg.Exec(t, "ALTER PUBLICATION "+publication+" ADD TABLE outbox_events")
	s.relay.WaitReady(t, 2*time.Minute)
	load.WaitCommitted(t, 300, time.Minute)
	load.Stop(t)
	s.settled(t)
	s.judge(t, 0)
}

// The server removes WAL that the slot needs while the relay is down, and the load goes on. Breaks it catches: rows of
// that time that do not arrive, that arrive twice, or behind later ones.
func TestInvalidatedSlotLosesNothingAndKeepsTheOrder(t *testing.T) {
	pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{Settings: map[string]string{"max_slot_wal_keep_size": "1MB"}})
	s := startScenario(t, pg, harness.Kafka(t))
	load := s.load(t, harness.Workload{Rate: 500, OnlyKept: true})
	load.WaitCommitted(t, 500, time.Minute)
	s.relay.Stop(t)
	load.WaitCommitted(t, 300, time.Minute)
	harness.Eventually(t, time.Minute, "the slot is lost", func(context.Context) string {
		pg.Exec(t, "SELECT pg_switch_wal()")
		pg.Exec(t, "CHECKPOINT")
		if status := pg.Query(t, fmt.Sprintf("SELECT wal_status FROM pg_replication_slots WHERE slot_name = '%s'", s.settings.Slot())); status != "lost" {
			return status
		}
		return ""
	})
	load.WaitCommitted(t, 300, time.Minute)
	began := time.Now()
	s.start(t)
	t.Logf("streaming again %v after the start", time.Since(began).Round(time.Millisecond))
	load.WaitCommitted(t, 300, time.Minute)
	load.Stop(t)
	s.settled(t)
	s.judge(t, 0)
	if n := s.relay.Metric(t, "cdc_slot_recreations_total"); n != 1 {
		t.Errorf("cdc_slot_recreations_total: got %v, want 1", n)
	}
}
