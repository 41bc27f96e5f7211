package inbox

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func ofType(r *kgo.Record, eventType string) *kgo.Record {
	for i, h := range r.Headers {
		if h.Key == "event_type" {
			r.Headers[i].Value = []byte(eventType)
		}
	}
	return r
}

// Forty events of a slow type wait before twenty of a fast one, and four workers take them. With a limit of two for the
// slow type, also for those that were parked, the fast ones are done while the slow ones stand still. Seen to fail with
// a limit that parked events do not count for.
func TestALimitLeavesWorkersToOtherTypes(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	pg := harness.Postgres(t)
	pg.Exec(t, effects)
	addrs, topic := topicOf(t, 1)
	gate := make(chan struct{})
	var now, most, failed atomic.Int32
	slow := func(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		if e.Payload.Fails != "" && failed.Add(1) <= 8 { // parked at its second attempt
			return errors.New("not now")
		}
		select {
		case <-gate:
			return apply(ctx, tx, e)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	produce(t, addrs, mixed(topic)...)
	_, _ = start(t, newPool(t, pg.URL, 6), inbox.Config{
		Brokers: addrs, Topics: []string{topic}, Workers: 4, IdleTimeout: time.Minute, HandlerTimeout: time.Minute,
		Retry: inbox.Retry{MaxAttempts: 100, InitialBackoff: time.Millisecond, MaxBackoff: time.Millisecond, ParkAfter: 1},
	}, func(c *inbox.Consumer) {
		inbox.On(c, "Slow", slow)
		inbox.On(c, "Fast", apply)
		c.Limit("Slow", 2)
	})
	until(t, pg, "SELECT count(*) FROM effect", "20")
	until(t, pg, "SELECT now() > max(next_at) + interval '1 second' FROM inbox_parked", "true") // they are long due
	close(gate)
	until(t, pg, "SELECT count(*) FROM effect", "60")
	judge(t, pg, 60)
	if most.Load() > 2 {
		t.Errorf("slow handlers at once: got %d, want at most 2", most.Load())
	}
}

// mixed returns forty slow events of forty keys, with four that fail at first, then twenty fast ones of other keys.
func mixed(topic string) (all []*kgo.Record) {
	for n := range 60 {
		p, eventType := payload{Seq: n}, "Slow"
		if n >= 40 {
			eventType = "Fast"
		} else if n < 4 {
			p.Fails = "at first"
		}
		id := fmt.Sprintf("019aa7e4-0000-7000-8000-%012x", n)
		all = append(all, ofType(eventOf(topic, fmt.Sprintf("k%d", n), id, p), eventType))
	}
	return all
}

// The figure of the limit: see above.
func TestHowLongFastEventsTakeBesideSlowOnes(t *testing.T) {
	harness.Full(t)
	if count(0, 1) == 0 {
		t.Skip("a figure for the docs: set CDC_RELAY_NIGHTLY=1")
	}
	for _, limit := range []int{0, 2} {
		pg := harness.Postgres(t)
		pg.Exec(t, effects)
		addrs, topic := topicOf(t, 1)
		produce(t, addrs, mixed(topic)...)
		began := time.Now()
		_, stop := start(t, newPool(t, pg.URL, 6), inbox.Config{Brokers: addrs, Topics: []string{topic}, Workers: 4},
			func(c *inbox.Consumer) {
				inbox.On(c, "Fast", apply)
				inbox.On(c, "Slow", func(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
					if _, err := tx.Exec(ctx, "SELECT pg_sleep(3)"); err != nil {
						return err
					}
					return apply(ctx, tx, e)
				})
				if limit > 0 {
					c.Limit("Slow", limit)
				}
			})
		until(t, pg, "SELECT count(*) FROM effect WHERE seq >= 40", "20")
		t.Logf("limit %d: the fast events were done after %v", limit, time.Since(began))
		stop()
	}
}

// What an error means is told by its text where the handler's code does not: one text is a dead letter at once, one
// counts no attempt, and others are attempts. Seen to fail without the hook.
func TestErrorsAreClassifiedByTheirText(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	pg := harness.Postgres(t)
	pg.Exec(t, effects)
	addrs, topic := topicOf(t, 1)
	var records []*kgo.Record
	for n, fails := range []string{"no such customer 7", "answer 503 from billing", "other", ""} {
		id := fmt.Sprintf("019aa7e4-0000-7000-8000-%012x", n)
		records = append(records, eventOf(topic, fmt.Sprint(n), id, payload{Seq: n, Fails: fails}))
	}
	produce(t, addrs, records...)
	var away atomic.Int32
	_, _ = start(t, newPool(t, pg.URL, 4), inbox.Config{
		Brokers: addrs, Topics: []string{topic},
		Retry: inbox.Retry{MaxAttempts: 3, InitialBackoff: time.Millisecond, MaxBackoff: time.Millisecond},
		Classify: inbox.ByMessage(
			inbox.Pattern{Text: regexp.MustCompile(`no such customer \d`), As: inbox.Permanent},
			inbox.Pattern{Text: regexp.MustCompile(`503|connection refused`), As: inbox.Outage},
		),
	}, func(c *inbox.Consumer) {
		inbox.On(c, "OrderPlaced", func(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
			if e.Payload.Fails == "" || e.Payload.Seq == 1 && away.Add(1) > 5 {
				return apply(ctx, tx, e)
			}
			return errors.New(e.Payload.Fails)
		})
	})
	until(t, pg, "SELECT string_agg(class || ' ' || attempts, ', ' ORDER BY class) FROM inbox_dead",
		"exhausted 3, permanent 1")
	until(t, pg, "SELECT string_agg(seq::text, ' ' ORDER BY seq) FROM effect", "1 3")
}
