package relay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Rows name twice as many topics as limits.topics, none existing, beside one that does. Breaks it catches: a
// topic without a bound; a flood of names that stops the others, by the breaker or by filling what waits; a status that
// grows with it. Seen to fail without the limit (no dead letter), with these dead letters counted by the breaker (it
// halts), and with the degradation left out.
func TestAFloodOfTopicsLeavesTheOthersAlone(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	n := harness.Count(t, "topics named by rows")
	b := newBed(t)
	b.c.Limits.Topics = n / 2
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 1, 1))
	b.waitRecorded(1)
	b.pg.Exec(t, fmt.Sprintf(`INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'absent' || i, 'k', 'made', jsonb_build_object('n', i) FROM generate_series(1, %d) i`, n))
	const good = 100
	for i := range good - 1 {
		b.pg.Exec(t, many(i+2, 1, 1))
	}
	b.waitRecorded(good)
	b.wantNumbers("outbox.event.order", good)
	b.waitDead(n/2 + 1) // the good topic is one of those that are counted
	b.waitQuery("parked", "SELECT count(*) FROM cdc_relay_parked", fmt.Sprint(n/2-1))
	if got := b.pg.Query(t, `SELECT count(DISTINCT topic) || ' ' || string_agg(DISTINCT error_code, ',')
		FROM outbox_events_dlq`); got != fmt.Sprint(n/2+1, " TOPIC_LIMIT") {
		t.Errorf("dead letters: got topics and codes %s, want %d and TOPIC_LIMIT", got, n/2+1)
	}
	if st := r.Status(); st.Halt != nil || len(st.Degraded) != 22 ||
		!strings.Contains(st.Degraded[21].Text, "more topics than limits.topics") {
		t.Errorf("status: got halt %v and %d degradations: %v", st.Halt, len(st.Degraded), st.Degraded)
	}
	if said, _ := json.Marshal(r.Status()); len(said) > 32<<10 {
		t.Errorf("status: got %d bytes, want no more than 32 KiB", len(said))
	}
	t.Log("latency of the good topic, median, p99 and most:", b.pg.Query(t, `
		SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY j.published_at - o.created_at) || ' ' ||
			percentile_cont(0.99) WITHIN GROUP (ORDER BY j.published_at - o.created_at) || ' ' ||
			max(j.published_at - o.created_at)
		FROM cdc_relay_journal j JOIN outbox_events o ON o.id::text = j.event_id::text`))
	mustStop(t, stop)
}

// A topic beyond the limit is meant. Breaks it catches: its events lost; a replay that forgets which topic they were
// for, or sends them before the state knows it, so that a start after a crash would not look there; topics that are
// known already and have no place any more after the limit was lowered. Seen to fail with the dead letter stored
// without its topic, with parked topics not announced, and with the known topics counted against the limit.
func TestEventsBeyondTheTopicLimitArePublishedOnceItIsRaised(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	b := newBed(t)
	b.createTopic("outbox.event.other", 1)
	b.c.Limits.Topics = 1
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, insert("order", "a", `{"n": 1}`, ""))
	b.waitRecorded(1)
	b.pg.Exec(t, insert("other", "b", `{"n": 1}`, "")+insert("other", "b", `{"n": 2}`, "")+
		insert("order", "a", `{"n": 2}`, ""))
	b.waitRecorded(2)
	b.waitDead(2)
	known := "SELECT count(*) FROM cdc_relay_offset WHERE topic = 'outbox.event.other' AND partition = -1"
	if got := b.pg.Query(t, known); got != "0" {
		t.Errorf("known: got %s rows of a topic without a place, want none", got)
	}
	b.waitExecuted(b.ask(store.RequestReplay, store.Filter{All: true})) // without success
	b.waitQuery("dead again", "SELECT count(*) FROM outbox_events_dlq WHERE replayed_at IS NULL", "2")
	mustStop(t, stop)

	b.c.Limits.Topics = 2
	r, stop = b.start()
	b.waitRole(r, relay.RoleActive)
	b.waitExecuted(b.ask(store.RequestReplay, store.Filter{All: true}))
	b.waitRecorded(4)
	if got := b.pg.Query(t, known); got != "1" {
		t.Errorf("known: got %s rows of the topic, want 1", got)
	}
	wantKeys(t, b.values("outbox.event.other"), map[string][]string{"b": {`{"n": 1}`, `{"n": 2}`}})
	mustStop(t, stop)

	b.c.Limits.Topics = 1
	r, stop = b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, insert("other", "b", `{"n": 3}`, "")+insert("order", "a", `{"n": 3}`, ""))
	b.waitRecorded(6)
	mustStop(t, stop)
}

// Break it catches: a dead letter that the table refuses stops those that are stored with it. Seen to fail with the
// refusal of several taken for that of none of them.
func TestDeadLettersStoredTogetherFailAlone(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	b := newBed(t)
	b.pg.Exec(t, `ALTER TABLE outbox_events_dlq ADD CHECK (aggregate_id <> 'k7')`)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'a/b', 'k' || i, 'made', '{}' FROM generate_series(1, 40) i`)
	b.waitDead(39)
	b.pg.Exec(t, `ALTER TABLE outbox_events_dlq DROP CONSTRAINT outbox_events_dlq_aggregate_id_check`)
	harness.Eventually(t, bedPatience, "all are stored", func(context.Context) string {
		if n := b.pg.Query(t, "SELECT count(*) FROM outbox_events_dlq"); n != "40" {
			return "got " + n
		}
		return ""
	})
	mustStop(t, stop)
}
