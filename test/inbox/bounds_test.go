package inbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Events wait together, and each handler takes longer than a transaction may: each commits alone, so none waits for the
// handlers of all its neighbours. Events that come twice have one effect. Seen to fail with transactions that are as
// large as was planned: all were in one. And with parked events of a transaction that are not handled and yet done.
func TestSlowNeighboursDelayNoOther(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	pg := harness.Postgres(t)
	pg.Exec(t, effects)
	addrs, topic := topicOf(t, 1)
	const together, events = 12, 15
	var records []*kgo.Record
	for n := range together {
		r := event(topic, n, together/2)
		records = append(records, r)
		if n%5 == 0 {
			records = append(records, r)
		}
	}
	produce(t, addrs, records...)
	var well atomic.Bool
	_, stop := start(t, newPool(t, pg.URL, 4), inbox.Config{
		Brokers: addrs, Topics: []string{topic}, Workers: 1,
		Retry: inbox.Retry{
			MaxAttempts: 1 << 20, InitialBackoff: time.Millisecond, MaxBackoff: 50 * time.Millisecond, ParkAfter: 1,
		},
	}, func(c *inbox.Consumer) {
		inbox.On(c, "OrderPlaced", func(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
			if e.Payload.Seq == together && !well.Load() { // it is parked, and behind it the last two
				return errors.New("not now")
			}
			if _, err := tx.Exec(ctx, "SELECT pg_sleep(0.15)"); err != nil {
				return err
			}
			return apply(ctx, tx, e)
		})
	})
	until(t, pg, "SELECT count(*) FROM effect", fmt.Sprint(together))
	for n := together; n < events; n++ {
		produce(t, addrs, event(topic, n, 1))
	}
	until(t, pg, "SELECT count(*) FROM inbox_parked", "3")
	well.Store(true)
	until(t, pg, "SELECT count(*) FROM effect", fmt.Sprint(events))
	stop()
	judge(t, pg, events)
	if got := pg.Query(t, fmt.Sprintf(`SELECT max(n) FROM (SELECT count(*) AS n FROM effect WHERE seq < %d
		GROUP BY xmin) e`, together)); got != "1" {
		t.Errorf("events in a transaction: got up to %s, want 1", got)
	}
	if got := pg.Query(t, "SELECT count(*) FROM inbox_event WHERE state = 0"); got != strconv.Itoa(events) {
		t.Errorf("done: got %s, want %d", got, events)
	}
}

// A stop returns soon after the grace although a handler ignores its context, whether it waits in Go or in SQL; the
// pool can be closed, and nothing that the handler does later has an effect. The next start handles the event. Seen to
// fail with a stop that waits for the handler.
func TestAStopDoesNotWaitForHandlersThatIgnoreIt(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	for name, wait := range map[string]func(pgx.Tx, <-chan struct{}) error{
		"in Go": func(_ pgx.Tx, release <-chan struct{}) error { <-release; return nil },
		"in SQL": func(tx pgx.Tx, _ <-chan struct{}) error {
			_, err := tx.Exec(context.Background(), "SELECT pg_sleep(120)") //nolint:usetesting // as a handler would
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pg := harness.Postgres(t)
			pg.Exec(t, effects)
			addrs, topic := topicOf(t, 1)
			release, entered, later := make(chan struct{}), make(chan struct{}, 1), make(chan error, 1)
			produce(t, addrs, event(topic, 0, 1))
			pool := newPool(t, pg.URL, 4)
			config := inbox.Config{
				Brokers: addrs, Topics: []string{topic}, Grace: 500 * time.Millisecond, Log: newLog(&harness.Log{}),
			}
			_, stop := start(t, pool, config, func(c *inbox.Consumer) {
				inbox.On(c, "OrderPlaced", func(_ context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
					entered <- struct{}{}
					err := wait(tx, release)
					later <- errors.Join(err, apply(context.WithoutCancel(t.Context()), tx, e))
					return nil
				})
			})
			<-entered
			began := time.Now()
			stop()
			pool.Close()
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("the stop took %v, and the grace is %v", took, config.Grace)
			}
			close(release)
			if err := <-later; err == nil {
				t.Error("the handler's statement had no error after the stop")
			}
			if got := pg.Query(t, "SELECT count(*) FROM effect"); got != "0" {
				t.Errorf("effects after the stop: got %s, want 0", got)
			}
			_, _ = start(t, newPool(t, pg.URL, 4), config, onOrder)
			until(t, pg, "SELECT count(*) FROM effect", "1")
		})
	}
}

// No more events are parked than MaxParked says, by all processes together, whatever they wait for; the others wait in
// memory, and all are handled when the handlers work again. Seen to fail with a bound that is looked at now and then:
// 200 were parked.
func TestMaxParkedHolds(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	for name, retry := range map[string]inbox.Retry{
		"for their time": {
			MaxAttempts: 1 << 20, InitialBackoff: time.Millisecond, MaxBackoff: 50 * time.Millisecond, ParkAfter: 1,
		},
		"for a person": {MaxAttempts: 1, OnDead: inbox.Hold},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pg := harness.Postgres(t)
			pg.Exec(t, effects)
			addrs, topic := topicOf(t, 2)
			const events, keys, most = 200, 4, 50 // so few keys do not open the breaker
			var records []*kgo.Record
			for n := range events {
				records = append(records, event(topic, n, keys))
			}
			var well atomic.Bool
			for range 2 {
				_, _ = start(t, newPool(t, pg.URL, 4), inbox.Config{
					Brokers: addrs, Topics: []string{topic}, MaxParked: most, Retry: retry, Log: newLog(&harness.Log{}),
				}, func(c *inbox.Consumer) {
					inbox.On(c, "OrderPlaced", func(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
						if !well.Load() {
							return errors.New("not now")
						}
						return apply(ctx, tx, e)
					})
				})
			}
			produce(t, addrs, records...)
			harness.Eventually(t, time.Minute, "nothing more is parked for a while", func(ctx context.Context) string {
				got, err := pg.TryQuery(ctx, `SELECT count(*) || ' ' ||
					coalesce(now() > max(parked_at) + interval '3 seconds', false) FROM inbox_parked`)
				number, still, _ := strings.Cut(got, " ")
				if n, _ := strconv.Atoi(number); n > most {
					t.Fatalf("parked: got %d, want at most %d", n, most)
				}
				if err != nil || still != "true" {
					return fmt.Sprintf("%q, %v", got, err)
				}
				return ""
			})
			well.Store(true)
			if retry.OnDead == inbox.Hold {
				pg.Exec(t, "SELECT inbox_replay('billing', event_id) FROM inbox_parked")
			}
			until(t, pg, "SELECT count(*) FROM effect", strconv.Itoa(events))
			judge(t, pg, events)
		})
	}
}

// No statement of a consumer reads the whole table of ids, also with plans that were kept from the time when the table
// was small: events that come again, that are handed back and that were parked. Seen to fail with statements that are
// prepared once, and with inbox_same and inbox_claim_events as joins.
func TestNoStatementReadsTheWholeInbox(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	pg := newInbox(t)
	pg.Exec(t, effects+"; ALTER TABLE inbox_event SET (autovacuum_enabled = off)")
	addrs, topic := topicOf(t, 1)
	pool := newPool(t, pg.URL, 4)
	_, stop := start(t, pool, inbox.Config{
		Brokers: addrs, Topics: []string{topic}, Workers: 1,
		Retry: inbox.Retry{InitialBackoff: time.Millisecond, ParkAfter: 1},
	}, func(c *inbox.Consumer) {
		inbox.On(c, "OrderPlaced", func(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
			if e.Payload.Seq%100 == 0 && e.Attempt == 1 {
				return errors.New("not now")
			}
			if e.Payload.Seq%40 == 7 { // the rest of its transaction is handed back
				if _, err := tx.Exec(ctx, "SELECT pg_sleep(0.12)"); err != nil {
					return err
				}
			}
			return apply(ctx, tx, e)
		})
	})
	send := func(from, to int) {
		var records []*kgo.Record
		for n := from; n < to; n++ {
			records = append(records, event(topic, n, 100), event(topic, n, 100))
		}
		produce(t, addrs, records...)
		until(t, pg, "SELECT count(*) FROM effect", strconv.Itoa(to))
	}
	send(0, 600)
	pg.Exec(t, `INSERT INTO inbox_event (consumer, source, event_id, state)
		SELECT 1, 0, 'e' || i, 0 FROM generate_series(1, 100000) i`)
	const reads = `SELECT t.seq_tup_read + i.idx_tup_read < 100000 FROM pg_stat_user_tables t
		JOIN pg_stat_user_indexes i USING (relid) WHERE t.relname = 'inbox_event'`
	send(600, 1200)
	stop()
	pool.Close() // the sessions' counts are there then
	judge(t, pg, 1200)
	if got := pg.Query(t, reads); got != "true" {
		t.Errorf("rows that were read are fewer than the table has: got %s, want true", got)
	}
}
