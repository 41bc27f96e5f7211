package test

import (
	"context"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// parkedBefore makes tables and state, by a start and a stop of the relay, and stores n events {"n": 1…} of some 250
// bytes aside as an earlier process would have, over so many keys; the head of each lane is due then.
func (s *scenario) parkedBefore(t *testing.T, n, keys int, due string) {
	t.Helper()
	s.relay.Init(t)
	s.start(t)
	s.relay.Stop(t)
	s.pg.Exec(t,
		fmt.Sprintf(
			`INSERT INTO cdc_relay_parked (source, event_id, topic, key, epoch, from_stream, position_order, position_index,
			aggregate_type, aggregate_id, event_type, payload, created_at, error_class, next_retry_at)
		SELECT (SELECT source FROM cdc_relay_state), gen_random_uuid(), '%[4]s', convert_to('k' || i %% %[2]d, 'UTF8'), 0,
		true, 1, i, 'order', 'k' || i %% %[2]d,
			'made', convert_to(jsonb_build_object('n', i, 'filler', repeat('x', 230))::text, 'UTF8'), now()::text, 'blocked',
			CASE WHEN i <= %[2]d THEN %[3]s END
		FROM generate_series(1, %[1]d) i`, n, keys, due, s.settings.Topic("order")))
	s.pg.Exec(t, "ANALYZE cdc_relay_parked") // as autovacuum has by the time that so many are there
}

// One key with many parked events is drained once its head is published. Breaks it catches: a lane that is drained
// event by event, by reading what is deleted of it time and again, out of order, twice, or not to its end. Seen to fail
// with portions of one event.
func TestLongParkedLaneDrainsFast(t *testing.T) {
	harness.Full(t)
	s := newScenario(t, harness.Postgres(t), harness.Kafka(t))
	n := harness.Count(t, "blocked events of a lane")
	s.parkedBefore(t, n, 1, "now() + interval '1 hour'")
	s.start(t)
	if code, _, stderr := s.relay.Run(t, "retry", "now", "--all"); code != 0 {
		t.Fatalf("retry now: exit %d, %s", code, stderr)
	}
	harness.Eventually(t, settlePatience, "nothing is parked", func(context.Context) string {
		if left := s.relay.Metric(t, "outbox_parked_events"); left != 0 {
			return fmt.Sprintf("%.0f are parked", left)
		}
		return ""
	})
	// From the transaction that recorded the head to the last one; the first look at the time is the head's commit.
	took := s.seconds(t, "SELECT max(published_at) - min(published_at) FROM cdc_relay_journal")
	batches := s.number(t, s.pg.Query(t, "SELECT count(*) FROM cdc_relay_journal_batch"))
	t.Logf("%d blocked events of a key drained in %.2f s, %.0f/s, in %d transactions; mark: 20000/s", n, took,
		float64(n)/took, batches)
	if most := n / 200; batches > most {
		t.Errorf("transactions that recorded %d events: got %d, want at most %d", n, batches, most)
	}
	if most := float64(n) / 1000; took > most { // twenty times the mark: machines are shared
		t.Errorf("%d blocked events: drained in %.1f s, want at most %.1f", n, took, most)
	}
	last, wrong := 0, 0
	harness.Consume(t, s.kafka.Addrs, []string{s.settings.Topic("order")}, func(r *kgo.Record) {
		var number int
		if _, err := fmt.Sscanf(string(r.Value), `{"n": %d`, &number); err != nil {
			t.Fatalf("value %.60q: %v", r.Value, err)
		}
		if number != last+1 {
			wrong++
		}
		last = number
	})
	if wrong > 0 || last != n {
		t.Errorf("topic: got %d events that do not come after their predecessor, and %d as the last; want 0 and %d",
			wrong, last, n)
	}
}

// Many events are parked, and nothing of them is due. Breaks it catches: lanes that are not held after a start; a start
// or a new key that waits for all of them, and memory that grows with them, if many times worse than the figures that
// it logs. Seen to fail with the lanes not held at a start.
func TestManyParkedEventsDelayNoStart(t *testing.T) {
	harness.Full(t)
	s := newScenario(t, harness.Postgres(t), harness.Kafka(t))
	n := harness.Count(t, "parked events at a start")
	keys := n / 10
	s.parkedBefore(t, n, keys, "now() + interval '1 hour'")
	s.pg.Exec(t, "INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', "+
		"'fresh', 'made', '{}')")
	begun := s.pg.Query(t, "SELECT clock_timestamp()")
	s.start(t)
	harness.Eventually(t, settlePatience, "the new event is recorded",
		s.asking(t, "SELECT CASE count(*) WHEN 1 THEN '' ELSE 'not yet' END FROM cdc_relay_journal"))
	took := s.seconds(t, "SELECT published_at - '"+begun+"' FROM cdc_relay_journal")
	rss := float64(s.relay.PeakRSS(t)) / (1 << 20)
	t.Logf("%d events of %d keys parked: the first new event recorded %.2f s after the start of the process, peak "+
		"memory %.0f MiB; mark: 2 s", n, keys, took, rss)
	const mostTime, mostMemory = 20, 160 // s, ten times the mark: machines are shared; MiB
	if took > mostTime || rss > mostMemory {
		t.Errorf("a start with %d events parked: got %.1f s and %.0f MiB, want at most %d and %d", n, took, rss, mostTime,
			mostMemory)
	}
	if held := s.relay.Metric(t, "outbox_parked_keys"); held != float64(keys) {
		t.Errorf("held keys: got %.0f, want %d", held, keys)
	}
}

// seconds is an interval that the query gives.
func (s *scenario) seconds(t *testing.T, query string) float64 {
	t.Helper()
	var seconds float64
	if _, err := fmt.Sscan(s.pg.Query(t, "SELECT extract(epoch FROM ("+query+"))"), &seconds); err != nil {
		t.Fatal(err)
	}
	return seconds
}
