package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func onOrder(c *inbox.Consumer) { inbox.On(c, "OrderPlaced", apply) }

// Every event is in the topic twice, and everything is read again by a consumer whose offsets are lost. Seen to fail
// with a claim that returns no conflicts, and under -race with a client that callbacks see only when NewClient returns.
func TestForcedDuplicatesAreHandledOnce(t *testing.T) {
	t.Parallel()
	pg := harness.Postgres(t)
	pg.Exec(t, effects)
	addrs, topic := topicOf(t, 3)
	const events, keys = 1000, 7
	var records []*kgo.Record
	for n := range events {
		records = append(records, event(topic, n, keys))
		if n%10 == 9 { // a relay that was killed between sending and recording
			for again := n - 9; again <= n; again++ {
				records = append(records, event(topic, again, keys))
			}
		}
	}
	produce(t, addrs, records...)
	config := inbox.Config{Brokers: addrs, Topics: []string{topic}}
	_, stop := start(t, newPool(t, pg.URL, 6), config, onOrder)
	until(t, pg, "SELECT count(*) FROM effect", fmt.Sprint(events))
	until(t, pg, "SELECT sum(next_offset) FROM inbox_offset", fmt.Sprint(2*events))
	stop()
	pg.Exec(t, "UPDATE inbox_offset SET next_offset = 0")
	produce(t, addrs, event(topic, events, keys)) // the end of what is read: everything before it is read again
	_, stop = start(t, newPool(t, pg.URL, 6), config, onOrder)
	until(t, pg, "SELECT sum(next_offset) FROM inbox_offset", fmt.Sprint(2*events+1))
	stop()
	judge(t, pg, events+1)
}

// A key fails: its event is parked, with what follows, until it is well; other keys and the offsets go on. Seen to fail
// with followers that are handled at once.
func TestAFailingEventDelaysItsKeyOnly(t *testing.T) {
	t.Parallel()
	pg := harness.Postgres(t)
	pg.Exec(t, effects)
	addrs, topic := topicOf(t, 3)
	const events, keys = 300, 10
	var records []*kgo.Record
	for n := range events {
		record := event(topic, n, keys)
		if n == 4 {
			record = eventOf(topic, "k4", "019aa7e4-0000-7000-8000-000000000004", payload{Seq: 4, Fails: "until well"})
		}
		records = append(records, record)
	}
	produce(t, addrs, records...)
	var well atomic.Bool
	register := func(c *inbox.Consumer) {
		inbox.On(c, "OrderPlaced", func(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
			if e.Payload.Fails != "" && !well.Load() {
				return errors.New("not now")
			}
			return apply(ctx, tx, e)
		})
	}
	config := inbox.Config{Brokers: addrs, Topics: []string{topic}, Retry: inbox.Retry{
		MaxAttempts: 1000, InitialBackoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond,
	}}
	_, stop := start(t, newPool(t, pg.URL, 6), config, register)
	until(t, pg, "SELECT count(*) FROM effect WHERE key <> 'k4'", fmt.Sprint(events-events/keys))
	until(t, pg, "SELECT sum(next_offset) FROM inbox_offset", fmt.Sprint(events))
	until(t, pg, "SELECT count(*) FROM inbox_parked", fmt.Sprint(events/keys))
	if got := pg.Query(t, "SELECT count(*) FROM effect WHERE key = 'k4'"); got != "0" {
		t.Errorf("effects of the failing key: got %s, want 0", got)
	}
	stop()
	well.Store(true) // and another process goes on with what is parked
	_, stop = start(t, newPool(t, pg.URL, 6), config, register)
	until(t, pg, "SELECT count(*) FROM inbox_parked", "0")
	stop()
	judge(t, pg, events)
}

// An event that fails permanently is a dead letter; its followers go on, and a replay has its effect. Seen to fail with
// a replay that leaves the row dead.
func TestDeadLettersAreReplayedAndDiscarded(t *testing.T) {
	t.Parallel()
	pg := harness.Postgres(t)
	pg.Exec(t, effects)
	addrs, topic := topicOf(t, 1)
	var well atomic.Bool
	register := func(c *inbox.Consumer) {
		inbox.On(c, "OrderPlaced", func(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
			switch {
			case well.Load() || e.Payload.Fails == "":
				return apply(ctx, tx, e)
			case e.Payload.Fails == "permanent":
				return inbox.Permanent(errors.New("no such customer"))
			}
			return errors.New("cannot be")
		})
	}
	id := func(n int) string { return fmt.Sprintf("019aa7e4-0000-7000-8000-%012x", n) }
	for n, fails := range []string{"", "permanent", "", "always", "", ""} {
		produce(t, addrs, eventOf(topic, "a", id(n), payload{n, fails}))
	}
	config := inbox.Config{Brokers: addrs, Topics: []string{topic}, Retry: inbox.Retry{
		MaxAttempts: 4, InitialBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond,
	}}
	c, stop := start(t, newPool(t, pg.URL, 6), config, register)
	until(t, pg, "SELECT count(*) FROM effect", "4")
	until(t, pg, "SELECT string_agg(class || attempts, ' ' ORDER BY event_id) FROM inbox_dead", "permanent1 exhausted4")
	well.Store(true)
	if done, err := c.Replay(t.Context(), id(1), "alice", "customer made"); err != nil || !done {
		t.Errorf("replay: got %v, %v, want true", done, err)
	}
	if done, err := c.Discard(t.Context(), id(3), "alice", ""); err != nil || !done {
		t.Errorf("discard: got %v, %v, want true", done, err)
	}
	until(t, pg, "SELECT count(*) FROM effect", "5")
	state, err := inbox.WaitHandled(t.Context(), newPool(t, pg.URL, 2), "public", "billing", id(1))
	if err != nil || state != "done" {
		t.Errorf("the replayed event: got %s, %v, want done", state, err)
	}
	if got := pg.Query(t, "SELECT inbox_state('billing', '"+id(3)+"')"); got != "discarded" {
		t.Errorf("the discarded event: got %s, want discarded", got)
	}
	stop()
	if got := pg.Query(t, "SELECT string_agg(seq::text, ' ' ORDER BY n) FROM effect"); got != "0 2 4 5 1" {
		t.Errorf("effects: got %s, want 0 2 4 5 1", got)
	}
}

// A dead letter whose id is not a uuid is found without its source, replayed and waited for, and the handler sees that
// it is late. Seen to fail with ids that need their source: there was nothing to replay.
func TestADeadLetterWithANumberIsReplayedAndMarked(t *testing.T) {
	t.Parallel()
	pg := harness.Postgres(t)
	pg.Exec(t, effects)
	addrs, topic := topicOf(t, 1)
	record := eventOf(topic, "a", "7", payload{Seq: 7})
	record.Headers = append(record.Headers, kgo.RecordHeader{Key: "x-outbox-source", Value: []byte("1/1/3")})
	produce(t, addrs, record)
	var calls, marked atomic.Int32
	config := inbox.Config{Brokers: addrs, Topics: []string{topic}, Retry: inbox.Retry{InitialBackoff: time.Millisecond}}
	pool := newPool(t, pg.URL, 6)
	c, stop := start(t, pool, config, func(c *inbox.Consumer) {
		inbox.On(c, "OrderPlaced", func(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
			if e.Late && e.Replay {
				marked.Add(1)
			}
			switch calls.Add(1) {
			case 1:
				return inbox.Permanent(errors.New("no such customer"))
			case 2:
				return errors.New("not now")
			}
			return apply(ctx, tx, e)
		})
	})
	until(t, pg, "SELECT count(*) FROM inbox_dead", "1")
	if done, err := c.Replay(t.Context(), "7", "alice", "customer made"); err != nil || !done {
		t.Fatalf("replay: got %v, %v, want true", done, err)
	}
	if state, err := inbox.WaitHandled(t.Context(), pool, "public", "billing", "7"); err != nil || state != "done" {
		t.Errorf("the replayed event: got %s, %v, want done", state, err)
	}
	stop()
	judge(t, pg, 1)
	if marked.Load() != 2 {
		t.Errorf("attempts after the replay that were marked: got %d, want 2", marked.Load())
	}
}

// A person discards the only parked event of a key, and then others of the key come. Break it catches: a key that
// stands still until the next rebalance, because its events are parked behind one that is gone. Seen to fail with
// events parked behind others that are not due whatever is there.
func TestAKeyGoesOnAfterItsOnlyParkedEventIsDiscarded(t *testing.T) {
	t.Parallel()
	pg := harness.Postgres(t)
	pg.Exec(t, effects)
	addrs, topic := topicOf(t, 1)
	register := func(c *inbox.Consumer) {
		inbox.On(c, "OrderPlaced", func(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
			if e.Payload.Fails != "" {
				return inbox.Permanent(errors.New("no such customer"))
			}
			return apply(ctx, tx, e)
		})
	}
	id := func(n int) string { return fmt.Sprintf("019aa7e4-0000-7000-8000-%012x", n) }
	config := inbox.Config{Brokers: addrs, Topics: []string{topic}, Retry: inbox.Retry{OnDead: inbox.Hold}}
	c, stop := start(t, newPool(t, pg.URL, 6), config, register)
	for n := 0; n < 6; n += 3 { // the second time the key has been free in between
		produce(t, addrs, eventOf(topic, "a", id(n), payload{n, "permanent"}))
		until(t, pg, "SELECT count(*) FROM inbox_parked WHERE next_at = 'infinity'", "1")
		if done, err := c.Discard(t.Context(), id(n), "alice", ""); err != nil || !done {
			t.Fatalf("discard: got %v, %v, want true", done, err)
		}
		for i := n + 1; i < n+3; i++ {
			produce(t, addrs, eventOf(topic, "a", id(i), payload{i, ""}))
		}
		until(t, pg, "SELECT count(*) FROM effect", fmt.Sprint((n/3+1)*2))
	}
	stop()
	if got := pg.Query(t, "SELECT string_agg(seq::text, ' ' ORDER BY n) FROM effect"); got != "1 2 4 5" {
		t.Errorf("effects: got %s, want 1 2 4 5", got)
	}
}

// More parked events are due than one look takes, of a partition that no one has and behind one that a person holds.
// Break it catches: keys whose time has come that are never seen behind them. Seen to fail with the partitions not
// looked at.
func TestWhatIsDueElsewhereHidesNothing(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	pg := harness.Postgres(t)
	pg.Exec(t, effects)
	if err := inbox.Migrate(t.Context(), newPool(t, pg.URL, 2), "public"); err != nil {
		t.Fatal(err)
	}
	addrs, topic := topicOf(t, 1)
	var well atomic.Bool
	config := inbox.Config{Brokers: addrs, Topics: []string{topic}, Retry: inbox.Retry{
		MaxAttempts: 1, InitialBackoff: time.Millisecond, OnDead: inbox.Hold,
	}}
	c, stop := start(t, newPool(t, pg.URL, 6), config, func(c *inbox.Consumer) {
		inbox.On(c, "OrderPlaced", func(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
			if e.Payload.Fails != "" && (e.Payload.Fails == "always" || !well.Load()) {
				return errors.New("not now")
			}
			return apply(ctx, tx, e)
		})
	})
	id := func(n int) string { return fmt.Sprintf("019aa7e4-0000-7000-8000-%012x", n) }
	const many = 1100
	pg.Exec(t, fmt.Sprintf(`SELECT inbox_park('billing', 'away-' || i, 'away', 0, i, convert_to('k' || i, 'UTF8'), 'v',
		next_at => now() - interval '1 day') FROM generate_series(1, %d) i`, many))
	for n := range many {
		fails := ""
		if n == 0 {
			fails = "always"
		}
		produce(t, addrs, eventOf(topic, "long", id(n), payload{n, fails}))
	}
	produce(t, addrs, eventOf(topic, "short", id(many), payload{many, "until well"}))
	until(t, pg, "SELECT count(*) FROM inbox_parked WHERE topic <> 'away'", fmt.Sprint(many+1))
	if done, err := c.Replay(t.Context(), id(many-1), "alice", ""); err != nil || !done { // and the first fails again
		t.Fatalf("replay: got %v, %v, want true", done, err)
	}
	until(t, pg, "SELECT count(*) FROM inbox_parked WHERE next_at = 'infinity'", "2")
	well.Store(true)
	pg.Exec(t, "UPDATE inbox_parked SET next_at = now() WHERE topic <> 'away' AND key = 'short'")
	until(t, pg, "SELECT count(*) FROM effect", "1")
	stop()
}

// The same in SQL, after a claim that has answered behind: while the event before it is being discarded, and when it
// has been. Seen to fail in the first case with inbox_discard without a lock, and in both with inbox_park as it was.
func TestWhatIsParkedBehindADiscardedEventIsDue(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	pg := harness.Postgres(t)
	if err := inbox.Migrate(t.Context(), newPool(t, pg.URL, 2), "public"); err != nil {
		t.Fatal(err)
	}
	const park = "SELECT inbox_park('mail', '%s', 'orders', 0, %d, 'k', 'v', next_at => %s)"
	due := func(want string) {
		t.Helper()
		if got := pg.Query(t, "SELECT coalesce(string_agg(id, ' '), '') FROM inbox_take('mail')"); got != want {
			t.Errorf("due: got %q, want %q", got, want)
		}
	}
	pg.Exec(t, fmt.Sprintf(park, "a", 1, "'infinity'"))
	if said := pg.Query(t, "SELECT inbox_claim('mail', 'b', 'orders', 0, 'k')"); said != "behind" {
		t.Fatalf("claim: got %q, want behind", said)
	}
	tx, err := pg.Connect(t).Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), "SELECT inbox_discard('mail', 'a')")
	}
	if err != nil {
		t.Fatal(err)
	}
	parked, other := make(chan error, 1), pg.Connect(t)
	go func() {
		_, err := other.Exec(t.Context(), fmt.Sprintf(park, "b", 2, "NULL"))
		parked <- err
	}()
	harness.Eventually(t, 30*time.Second, "the park is over, or waits for the discard", func(context.Context) string {
		waiting := pg.Query(t, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
		if len(parked) == 0 && waiting == "0" {
			return "neither"
		}
		return ""
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-parked; err != nil {
		t.Fatal(err)
	}
	due("b")

	pg.Exec(t, "SELECT inbox_discard('mail', 'b')")
	pg.Exec(t, fmt.Sprintf(park, "c", 3, "NULL"))
	pg.Exec(t, fmt.Sprintf(park, "d", 4, "NULL"))
	due("c")
}

// Another transaction is in the way when a consumer starts, for longer than its role waits for a lock: it begins when
// the way is free. Seen to fail with a start that ends Run for it.
func TestAStartWaitsForALock(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	pg := harness.Postgres(t)
	pg.Exec(t, effects)
	addrs, topic := topicOf(t, 1)
	pool := newPool(t, pg.URL+"&lock_timeout=50ms", 6)
	if err := inbox.Migrate(t.Context(), pool, "public"); err != nil {
		t.Fatal(err)
	}
	tx, err := pg.Connect(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "LOCK TABLE inbox_consumer IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	produce(t, addrs, event(topic, 0, 1))
	c, stop := start(t, pool, inbox.Config{Brokers: addrs, Topics: []string{topic}}, onOrder)
	harness.Eventually(t, 30*time.Second, "it says what is in the way", func(context.Context) string {
		if st := c.Status(); !strings.Contains(st.Trouble, "lock timeout") {
			return fmt.Sprintf("trouble: %q", st.Trouble)
		}
		return ""
	})
	if err := tx.Rollback(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	until(t, pg, "SELECT count(*) FROM effect", "1")
	stop()
	judge(t, pg, 1)
}
