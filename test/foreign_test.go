package test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// walsender is the state of the server's side of the stream by the relay; no state if unknown.
type walsender struct {
	State  string
	Behind int64   `json:"behind_bytes"`
	Sent   *string `json:"sent_lsn"`
	Wait   string  `json:"wait_event"`
	Spilt  int64   `json:"spilled_bytes"`
}

func (s *scenario) walsender(t *testing.T) walsender {
	t.Helper()
	_, body := s.relay.Get(t, "/api/v1/status")
	var st struct{ Walsender walsender }
	if err := json.Unmarshal([]byte(body), &st); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return st.Walsender
}

// waitServer waits until the server is at it; it must not be at the other in the meantime.
func (s *scenario) waitServer(t *testing.T, want, never string) (found walsender) {
	t.Helper()
	harness.Eventually(t, 2*time.Minute, "the server is said to be "+want, func(context.Context) string {
		if found = s.walsender(t); found.State == never {
			t.Fatalf("the server is said to be %s, want %s: %+v", never, want, found)
		}
		if found.State != want {
			return fmt.Sprintf("it is %q", found.State)
		}
		return ""
	})
	return found
}

// seenDecoding looks at what the server is said to be at until the events that are there are recorded.
func (s *scenario) seenDecoding(t *testing.T) (busy walsender, seen bool) {
	t.Helper()
	recorded := s.asking(t, fmt.Sprintf(`SELECT CASE WHEN confirmed_flush_lsn >= '%s' THEN '' ELSE 'not yet' END
		FROM pg_replication_slots WHERE slot_name = '%s'`, s.pg.Query(t, "SELECT pg_current_wal_lsn()"), s.settings.Slot()))
	harness.Eventually(t, 2*time.Minute, "the events behind the import are recorded", func(ctx context.Context) string {
		if busy = s.walsender(t); busy.State == "decoding" {
			seen = true
			return ""
		} else if busy.State == "blocked" {
			t.Fatalf("the server is said to be blocked: %+v", busy)
		}
		return recorded(ctx)
	})
	return busy, seen
}

// Millions of rows that are not the relay's are committed at once, as by an import. The server writes them to files and
// reads them back before it sends what was committed behind them; that must be told from a relay that is slow, which
// comes first. Breaks it catches: events that wait, and no one can say for what; the server blamed for a relay that
// does not read, or for events that flow; a session that ends because the server is silent for long. Seen to fail with
// the spilled rows taken for a server that has caught up, and with the relay's own wait left out of account.
func TestLargeTransactionOfOthersIsToldFromASlowRelay(t *testing.T) {
	harness.Full(t)
	const timeout = 12 * time.Second // of silence; the server is looked at three times in half of it
	pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{Settings: map[string]string{
		"logical_decoding_work_mem": "64kB", "max_wal_size": "4GB"}})
	s := startScenario(t, pg, harness.Kafka(t), "postgres.wal_sender_timeout", timeout, "limits.in_flight_bytes", "4MiB")
	s.waitServer(t, "caught_up", "decoding")

	unlock := s.lockJournal(t)
	load := s.load(t, harness.Workload{Rate: 1000, PayloadBytes: 10_000}) // more than the sockets' buffers take
	load.WaitCommitted(t, 2_500, time.Minute)
	s.waitServer(t, "blocked", "decoding")
	load.Stop(t)
	unlock()
	s.settled(t)
	s.waitServer(t, "caught_up", "decoding")

	pg.Exec(t, "CREATE TABLE imported (n bigint, a text)")
	seen := false
	for rows := harness.Count(t, "imported rows"); !seen; rows *= 2 { // a quick server is done between two looks
		if rows > 30_000_000 {
			t.Fatal("the server was never said to be decoding")
		}
		pg.Exec(t, fmt.Sprintf("INSERT INTO imported SELECT n, md5(n::text) FROM generate_series(1, %d) n", rows))
		committed := time.Now()
		s.load(t, harness.Workload{Events: 10}).Wait(t)
		var busy walsender
		busy, seen = s.seenDecoding(t)
		if seen && (busy.Spilt == 0 || busy.Behind == 0 || busy.Sent == nil) {
			t.Errorf("the server works through the import: got %+v, want its bytes", busy)
		}
		s.settled(t)
		took := time.Since(committed).Round(time.Millisecond)
		t.Logf("events behind %d rows of another table were recorded %v after the commit; said to be decoding: %t, "+
			"with %d MiB in files, wait %q", rows, took, seen, busy.Spilt>>20, busy.Wait)
	}
	s.waitServer(t, "caught_up", "blocked")
	if n := s.relay.Metric(t, "cdc_stream_restarts_total"); n != 0 {
		t.Errorf("the session ended %v times; want the server's silence outlasted", n)
	}
	s.judge(t, 0)
}
