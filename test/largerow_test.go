package test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A row that Postgres has taken and cannot print. Breaks it catches: a relay that asks for it again forever; a runbook
// whose commands do not lead past it; rows behind it that do not arrive. Seen to fail with the slot not moved.
func TestRunbookLeadsPastARowTooLargeToPrint(t *testing.T) {
	harness.Full(t)
	megabytes := harness.Count(t, "large row megabytes")
	if megabytes == 0 {
		t.Skip("left to the night: it takes gigabytes of memory. TestUnreadableWALHaltsUntilTheSlotIsMoved, in relay, is " +
			"the small one")
	}
	pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{})
	pg.Exec(t,
		`CREATE TABLE outbox_events (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), seq bigint GENERATED ALWAYS AS IDENTITY,
		aggregate_type text, aggregate_id text, event_type text, payload bytea, headers jsonb,
		created_at timestamptz NOT NULL DEFAULT clock_timestamp(), published_at timestamptz)`)
	s := startScenario(t, pg, harness.Kafka(t))
	insert := func(events int, payload string) {
		t.Helper()
		pg.Exec(t, fmt.Sprintf(`INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
			SELECT 'order', 'a', 'made', %s FROM generate_series(1, %d)`, payload, events))
	}
	insert(5, "'x'")
	insert(1, fmt.Sprintf("convert_to(repeat('x', %d), 'UTF8')", megabytes<<20))
	insert(5, "'y'")
	halted := s.waitHalted(t, "unreadable")
	t.Logf("a row of %d MB: halted after %v: %s", megabytes, halted.Round(time.Millisecond), reason(t, s))

	blocks := runbookSQL(t, "unreadable")
	var id string
	var size int64
	if err := pg.Connect(t).QueryRow(t.Context(), blocks[0]).Scan(&id, &size); err != nil {
		t.Fatalf("find the row as the runbook says: %v", err)
	}
	pg.Exec(t, "DELETE FROM outbox_events WHERE id = '"+id+"'")
	// the relay may be trying just now
	harness.Eventually(t, time.Minute, "the slot is moved", func(context.Context) string {
		if code, stdout, stderr := s.relay.Run(t, "slot", "advance", "--to", "end", "--yes"); code != 0 {
			return stdout + stderr
		}
		return ""
	})
	pg.Exec(t, blocks[1])
	s.relay.WaitReady(t, 2*time.Minute)
	insert(5, "'z'")
	s.settled(t)
	harness.Eventually(t, time.Minute, "every row is journaled",
		s.asking(t, `SELECT coalesce(nullif(count(*), 0) || ' rows are not', '')
		FROM outbox_events WHERE id NOT IN (SELECT event_id FROM cdc_relay_journal)`))
	if got := s.records(t); got != 15 {
		t.Errorf("records: got %d, want 15, one for each row that is left", got)
	}
}

// reason returns the reason of the halt from the relay's log.
func reason(t *testing.T, s *scenario) string {
	t.Helper()
	_, rest, _ := strings.Cut(s.relay.Log(t), `"code":"unreadable","reason":"`)
	text, _, _ := strings.Cut(rest, `"`)
	return text
}
