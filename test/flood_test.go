package test

import (
	"context"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A flood of bad events halts the relay, and the command lets it go on. Breaks it catches: a halt that the metric does
// not tell, or that resume does not end (seen to fail with one that leaves the breaker open); more dead letters than
// allowed before it; good events that are lost behind it.
func TestResumeEndsAFloodOfDeadLetters(t *testing.T) {
	harness.Full(t)
	s := startScenario(t, harness.Postgres(t), harness.Kafka(t), "dlq.breaker.count", 10)
	s.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, headers)
		SELECT 'order', 'k' || i % 7, 'made', '{}', CASE WHEN i <= 60 THEN '[]'::jsonb END FROM generate_series(1, 100) i`)
	s.waitHalted(t, "dlq_flood")
	// Those that might die before are written about then.
	harness.Eventually(t, settlePatience, "as many are dead as may be",
		s.asking(t, "SELECT CASE count(*) WHEN 10 THEN '' ELSE count(*) || ' dead' END FROM outbox_events_dlq"))
	resume := func() {
		if code, _, stderr := s.relay.Run(t, "resume", "--note", "they may die"); code != 0 {
			t.Fatalf("resume: exit %d, %s", code, stderr)
		}
	}
	resume()
	settled := s.asking(t, `SELECT CASE WHEN j = 40 AND d = 60 THEN '' ELSE j || ' journaled, ' || d || ' dead' END
		FROM (SELECT count(*) j FROM cdc_relay_journal) j, (SELECT count(*) d FROM outbox_events_dlq) d`)
	harness.Eventually(t, settlePatience, "60 are dead and 40 journaled", func(ctx context.Context) string {
		// What was read when the breaker opened may die. What Postgres sends later, of the same transaction even, is a flood
		// again.
		if s.relay.Metric(t, "cdc_relay_halted", `code="dlq_flood"`) == 1 {
			resume()
		}
		return settled(ctx)
	})
	s.relay.WaitReady(t, time.Minute)
	if halted := s.relay.Metric(t, "cdc_relay_halted", `code="dlq_flood"`); halted != 0 {
		t.Errorf("cdc_relay_halted after resume: got %v, want 0", halted)
	}
}
