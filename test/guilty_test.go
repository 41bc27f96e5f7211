package test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// commit commits the events {"n": from…to}, each in a transaction of its own, the first for the key guilty and two
// hours old, every tenth of the others for the same key, the rest for 50 other keys.
func (s *scenario) commit(t *testing.T, from, to int) {
	t.Helper()
	s.pg.Exec(t, fmt.Sprintf(`DO $$ BEGIN FOR i IN %[1]d..%[2]d LOOP
		INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, created_at)
		VALUES ('order', CASE (i - %[1]d) %% 10 WHEN 0 THEN 'guilty' ELSE 'k' || i %% 50 END, 'made', jsonb_build_object('n',
		i),
			clock_timestamp() - CASE i WHEN %[1]d THEN interval '2 hours' ELSE interval '0' END);
		COMMIT; END LOOP; END $$`, from, to))
}

// others is the longest time from the commit of an event of another key to its journal row.
func (s *scenario) others(t *testing.T, from int) float64 {
	t.Helper()
	return s.seconds(t,
		fmt.Sprintf(
			`SELECT max(j.published_at - o.created_at) FROM outbox_events o JOIN cdc_relay_journal j ON j.event_id = o.id
		WHERE aggregate_id <> 'guilty' AND (payload->>'n')::int >= %d`, from))
}

// followers is the time from then to the journal row of the last event of the guilty key.
func (s *scenario) followers(t *testing.T, from int, then string) float64 {
	t.Helper()
	return s.seconds(t,
		fmt.Sprintf(`SELECT max(j.published_at) - (%s) FROM outbox_events o JOIN cdc_relay_journal j ON j.event_id = o.id
		WHERE aggregate_id = 'guilty' AND (payload->>'n')::int > %d`, then, from))
}

// Kafka refuses one event, for a timestamp that its topic does not take. It dies, and its followers go on; another one
// dies with retry.on_dead: hold, and is replayed when the topic takes it. Breaks it catches: other keys that wait for
// it (those of the second part wait for a person then); followers that are lost, go before it is dead or published, or
// come out of order. Seen to fail with followers that are not parked.
func TestOneBadEventDelaysItsOwnKeyOnly(t *testing.T) {
	harness.Full(t)
	kafka := harness.Kafka(t)
	s := newScenario(t, harness.Postgres(t), kafka, "message.timestamp", "created_at")
	topic := s.settings.Topic("order")
	oldest := func(milliseconds string) {
		t.Helper()
		kafka.Configure(t, "message.timestamp.before.max.ms", milliseconds, topic)
	}
	oldest("3600000")
	s.relay.Init(t)
	s.start(t)
	const n = 200     // of these 20 of the key
	const most = 20.0 // seconds; the marks are 1 s, and machines are shared
	s.commit(t, 1, n)
	harness.Eventually(t, settlePatience, "all but one are journaled, and that is dead",
		s.asking(t, fmt.Sprintf(`SELECT CASE WHEN j = %d AND d = 1 THEN '' ELSE j || ' journaled, ' || d || ' dead' END
		FROM (SELECT count(*) j FROM cdc_relay_journal) j, (SELECT count(*) d FROM outbox_events_dlq WHERE error_code =
		'INVALID_TIMESTAMP' AND attempts = 5) d`, n-1)))
	waited, after := s.others(t, 1), s.followers(t, 1, "SELECT dead_at FROM outbox_events_dlq")
	t.Logf("it dies: other keys waited at most %.3f s, its followers were recorded %.3f s after its death; marks: 1 s",
		waited, after)
	if waited > most || after > most {
		t.Errorf("waits: got %.1f and %.1f s, want at most %.0f", waited, after, most)
	}
	s.relay.Stop(t)

	s.relay = harness.NewRelay(t, s.settings.With("retry.on_dead", "hold"))
	s.start(t)
	s.commit(t, n+1, 2*n)
	harness.Eventually(t, settlePatience, "all of other keys are journaled, and of the key nothing",
		s.asking(t,
			fmt.Sprintf(
				`SELECT CASE WHEN j = %d AND p = 19 AND d = 2 THEN '' ELSE j || ' journaled, ' || p || ' parked, ' || d || ' dead'
					END
		FROM (SELECT count(*) j FROM cdc_relay_journal) j, (SELECT count(*) p FROM cdc_relay_parked WHERE error_class =
		'blocked') p, (SELECT count(*) d FROM outbox_events_dlq) d`, 2*n-1-20)))
	waited = s.others(t, n+1)
	oldest("9223372036854775807")
	if code, _, stderr := s.relay.Run(t, "dlq", "replay", "--all", "--timeout", "30s"); code != 0 {
		t.Fatalf("replay: exit %d, %s", code, stderr)
	}
	harness.Eventually(t, settlePatience, "everything is journaled",
		s.asking(t, fmt.Sprintf("SELECT CASE count(*) WHEN %d THEN '' ELSE count(*) || ' journaled' END FROM "+
			"cdc_relay_journal", 2*n)))
	after = s.followers(t, n+1, "SELECT max(requested_at) FROM cdc_relay_request")
	t.Logf("it is held: other keys waited at most %.3f s, its followers were recorded %.3f s after the request to "+
		"replay it; marks: 1 s", waited, after)
	if waited > most || after > most {
		t.Errorf("waits: got %.1f and %.1f s, want at most %.0f", waited, after, most)
	}
	lanes := map[string][]int{}
	harness.Consume(t, kafka.Addrs, []string{topic}, func(r *kgo.Record) {
		var number int
		if _, err := fmt.Sscanf(string(r.Value), `{"n": %d`, &number); err != nil {
			t.Fatalf("value %.60q: %v", r.Value, err)
		}
		if key := string(r.Key); number != 1 { // its place is behind: its followers went on long ago
			lanes[key] = append(lanes[key], number)
		}
	})
	count := 1
	for key, numbers := range lanes {
		if count += len(numbers); !slices.IsSorted(numbers) {
			t.Errorf("key %s: got %v, want them in order", key, numbers)
		}
	}
	if count != 2*n {
		t.Errorf("events in the topic: got %d, want %d", count, 2*n)
	}
}
