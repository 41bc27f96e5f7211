package test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A frozen relay loses the slot to the standby and, when it wakes up, writes nothing that matters: its queue was the
// standby's to send. The journal is locked before the freeze, so that there is a queue: few events may be sent and not
// recorded. Breaks it catches: a standby that does not take over within wal_sender_timeout and a second; a zombie that
// goes on to produce what it had in flight. Seen to fail with the sink's permit always given: the whole queue came
// twice.
func TestFrozenRelayIsReplacedAndStaysHarmless(t *testing.T) {
	const timeout, unrecorded, queued = 3 * time.Second, 100, 2000
	s := startScenario(t, harness.Postgres(t), harness.Kafka(t), "postgres.wal_sender_timeout", "3s",
		"postgres.status_interval", "500ms",
		"limits.max_unrecorded", unrecorded)
	standby := s.second(t)
	load := s.load(t, harness.Workload{Rate: 1000})
	load.WaitCommitted(t, 1000, time.Minute)
	unlock := s.lockJournal(t)
	harness.Eventually(t, time.Minute, "events queue in the relay", func(context.Context) string {
		if n := s.relay.Metric(t, "outbox_in_flight_events"); n < queued {
			return fmt.Sprintf("%v in flight, want %d", n, queued)
		}
		return ""
	})
	s.relay.Freeze()
	began := time.Now()
	unlock()
	waitRole(t, standby, "active")
	took := time.Since(began)
	t.Logf("the standby was active %v after the freeze", took.Round(time.Millisecond))
	// A second after the time-out is the promise; a shared machine gets more.
	if most := timeout + time.Duration(harness.Count(t, "frozen takeover seconds"))*time.Second; took > most {
		t.Errorf("takeover after a freeze: got %v, want at most %v", took, most)
	}
	load.WaitCommitted(t, 1000, time.Minute)
	s.relay.Thaw()
	waitRole(t, s.relay, "standby")
	load.WaitCommitted(t, 1000, time.Minute)
	load.Stop(t)
	s.settled(t)
	report := s.judge(t, unrecorded)
	t.Logf("%d duplicates", report.Duplicates())

	// What it had in memory when it was frozen is the standby's, and no reason to wait for the grace of 20 s.
	began = time.Now()
	s.relay.Stop(t)
	if took, most := time.Since(began), 10*time.Second; took > most {
		t.Errorf("stop of a relay that another one has replaced: got %v, want at most %v", took, most)
	}
}
