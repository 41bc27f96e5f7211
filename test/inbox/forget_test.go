package inbox

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// What consumers had decided, of each state, a day ago and now: 340 blocks.
const decided = `INSERT INTO inbox_consumer (name) VALUES ('billing'), ('shipping');
	INSERT INTO inbox_event (consumer, source, event_id, state, at)
	SELECT c.consumer, 0, gen_random_uuid(), s, now() - old * interval '1 day'
	FROM inbox_consumer c, generate_series(0, 3) s, generate_series(0, 1) old, generate_series(1, 1900) ORDER BY random()`

// Exactly those ids are forgotten that were decided for longer than Keep: done or discarded, by this consumer. Seen to
// fail with no look at the consumer or at the state, and with a hand that stays where it is.
func TestIDsAreForgottenAfterKeep(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	pg := harness.Postgres(t)
	pool := newPool(t, pg.URL, 4)
	if err := inbox.Migrate(t.Context(), pool, "public"); err != nil {
		t.Fatal(err)
	}
	pg.Exec(t, decided)
	addrs, topic := topicOf(t, 1)
	_, stop := start(t, pool, inbox.Config{Brokers: addrs, Topics: []string{topic}, Keep: 10 * time.Second}, onOrder)
	defer stop()
	const left = `SELECT string_agg(line, '; ' ORDER BY line) FROM (
		SELECT format('%s %s %s: %s', n.name, e.state, CASE WHEN e.at < now() - interval '1 hour' THEN 'old' ELSE 'new' END,
		count(*)) AS line FROM inbox_event e JOIN inbox_consumer n USING (consumer)
		GROUP BY n.name, e.state, e.at < now() - interval '1 hour') l`
	var want []string
	for _, of := range []string{"billing 1 new", "billing 1 old", "billing 2 new", "billing 2 old", "shipping 0 new",
		"shipping 0 old", "shipping 1 new", "shipping 1 old", "shipping 2 new", "shipping 2 old", "shipping 3 new",
		"shipping 3 old"} {
		want = append(want, of+": 1900")
	}
	until(t, pg, left, strings.Join(want, "; ")) // what was new for billing is old after ten seconds
}

// A look for old ids costs the blocks that it looks through, also in a table whose old rows were deleted and whose
// places were filled again, and where another session looks it waits for no one. Seen to fail
// with no limit of blocks, without SKIP LOCKED, with a pause that no one heeds, and with no look at the time.
func TestForgettingCostsTheSameInALongLife(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	pg := harness.Postgres(t)
	pool := newPool(t, pg.URL, 3)
	if err := inbox.Migrate(t.Context(), pool, "public"); err != nil {
		t.Fatal(err)
	}
	pg.Exec(t, decided)
	for range 2 {
		pg.Exec(t, "DELETE FROM inbox_event WHERE at < now() - interval '1 hour'")
		pg.Exec(t, "VACUUM inbox_event")
		pg.Exec(t, strings.SplitN(decided, ";", 2)[1])
	}
	pg.Exec(t, "VACUUM ANALYZE inbox_event")
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	var answer []byte
	for range 2 { // the first one compiles the functions
		if err := conn.QueryRow(t.Context(), `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)
			SELECT inbox_forget('billing', '2 days', blocks => 100)`).Scan(&answer); err != nil {
			t.Fatal(err)
		}
	}
	var plan []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	if err := json.Unmarshal(answer, &plan); err != nil {
		t.Fatal(err)
	}
	const itself = 50 // the consumer's row, catalogs
	if got := plan[0].Plan.Hit + plan[0].Plan.Read; got < 100 || got > 100+itself {
		t.Errorf("blocks that a look through 100 of them takes: got %d, want 100 and at most %d more", got, itself)
	}

	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "SELECT inbox_forget('billing', '2 days')"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := pool.Exec(ctx, "SELECT inbox_forget('billing', '1 hour')"); err != nil {
		t.Errorf("beside a session that looks: got %v, want nothing", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	hand := "SELECT forget_block FROM inbox_consumer WHERE name = 'billing'"
	was := pg.Query(t, hand)
	pg.Exec(t, "SELECT inbox_forget('billing', '2 days', pause => '1 hour')")
	if got := pg.Query(t, hand); got != was {
		t.Errorf("a look within the pause: the hand went from block %s to %s", was, got)
	}

	const old = `SELECT count(*) FROM inbox_event e JOIN inbox_consumer USING (consumer)
		WHERE name = 'billing' AND state IN (0, 3) AND at < now() - interval '1 hour'`
	want, all := pg.Query(t, old), "SELECT inbox_forget('billing', '1 hour', blocks => 100000)"
	first, second := pg.Query(t, all), pg.Query(t, all) // from where the hand is to the end, and the whole table
	if got := pg.Query(t, "SELECT "+first+"+"+second); got != want || first == "0" || second == "0" {
		t.Errorf("old ids: forgot %s and %s, want %s in all", first, second, want)
	}
}

// A topic that keeps messages for longer than the inbox keeps ids is told of, and no other. Seen to fail with the
// policy not looked at, with -1 taken for a time, and with each topic told of.
func TestATopicThatKeepsMessagesForLongerIsToldOf(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	kafka, pg := harness.Kafka(t), harness.Postgres(t)
	var topics []string
	for n, settings := range []map[string]string{{"retention.ms": "3600000"}, {"retention.ms": "7200000"},
		{"retention.ms": "-1"}, {"cleanup.policy": "compact", "retention.ms": "3600000"}} {
		topics = append(topics, kafka.Topic(t, fmt.Sprintf("order%d", n), 1, settings))
	}
	log := &harness.Log{}
	_, stop := start(t, newPool(t, pg.URL, 3), inbox.Config{Group: harness.Unique(t, "billing"), Brokers: kafka.Addrs,
		Topics: topics, Keep: 90 * time.Minute, Log: slog.New(slog.NewTextHandler(log, nil))}, onOrder)
	defer stop()
	harness.Eventually(t, 30*time.Second, "three topics are told of", func(context.Context) string {
		if got := strings.Count(log.String(), "repeat effects"); got != 3 {
			return fmt.Sprintf("got %d of them in %q", got, log)
		}
		return ""
	})
	for n, retention := range []string{"", "retention=2h0m0s", "retention=forever", "retention=forever"} {
		told := false
		for line := range strings.Lines(log.String()) {
			told = told || strings.Contains(line, "topic="+topics[n]+" ") && strings.Contains(line, retention)
		}
		if told != (n > 0) {
			t.Errorf("topic %d is told of: %t, in\n%s", n, told, log)
		}
	}
}
