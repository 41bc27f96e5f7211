package test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A relay is killed when many events are acknowledged by the broker and none of them is journaled. Breaks it catches:
// topics that are not read back, or not from where the journal ends, so that the next start sends the events again.
// Seen to fail with the topics not read back, and with each read from its topic's end.
func TestKill9SendsNothingAgainThatTheTopicsHold(t *testing.T) {
	harness.Full(t)
	s := startScenario(t, harness.Postgres(t), harness.Kafka(t))
	s.load(t, harness.Workload{Events: 500}).Wait(t)
	s.settled(t)
	before, published := s.number(t, s.pg.Truth(t)), s.relay.Metric(t, "outbox_published_total")
	unlock := s.lockJournal(t)
	s.load(t, harness.Workload{Seed: 2, Events: 1000}).Wait(t)
	sent := s.number(t, s.pg.Truth(t)) - before
	harness.Eventually(t, time.Minute, "all is published", func(context.Context) string {
		if got := s.relay.Metric(t, "outbox_published_total") - published; got != float64(sent) {
			return fmt.Sprintf("%v published, want %d", got, sent)
		}
		return ""
	})
	s.relay.Kill9()
	// Postgres does not notice, and would finish for the dead process what waits for the lock.
	ghosts := `FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'cdc-relay/%'`
	s.pg.Exec(t, "SELECT pg_terminate_backend(pid) "+ghosts)
	harness.Eventually(t, time.Minute, "the dead process has no session",
		s.asking(t, "SELECT coalesce(min('not yet'), '') "+ghosts))
	unlock()
	s.start(t)
	s.settled(t)
	s.judge(t, 0)
	t.Logf("%d events were sent and not journaled", sent)
	if got := s.relay.Metric(t, "outbox_duplicates_skipped_total", `by="topic"`); got != float64(sent) {
		t.Errorf("events found in the topics: got %v, want the %d that were sent and not journaled", got, sent)
	}
}
