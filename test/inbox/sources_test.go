package inbox

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Consumers of other brokers are killed and frozen, and the broker where it is the test's own; one event in a hundred
// fails, one in a thousand permanently.
func TestSourcesLoseDoubleAndDisorderNothing(t *testing.T) {
	t.Parallel()
	eachBroker(t, func(t *testing.T, b *broker) {
		faults, events := count(4, 60), count(3_000, 100_000)
		pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{})
		pg.Exec(t, effects)
		config := childConfig{URL: pg.URL, Brokers: []string{b.addr}, Broker: b.name, Topic: b.topic, Flaky: 0.01}
		consumers := []*process{startProcess(t, config), startProcess(t, config)}
		done := make(chan int, 1)
		go func() { done <- b.publishSlowly(t, events, 50, time.Duration(faults)*3*time.Second) }()
		for n := range faults {
			breakReader(t, n, consumers, pg, b)
		}
		permanent := <-done
		until(t, pg, "SELECT count(*) FROM inbox_event WHERE state <> 1", fmt.Sprint(events))
		for _, p := range consumers {
			p.stop()
		}
		if got := pg.Query(t, "SELECT count(*) FROM inbox_dead"); got != fmt.Sprint(permanent) {
			t.Errorf("dead letters: got %s, want %d", got, permanent)
		}
		judge(t, pg, events-permanent)
	})
}

// breakReader does harm to the process that reads, or to the broker, and undoes it.
func breakReader(t *testing.T, n int, consumers []*process, pg *harness.PG, b *broker) {
	t.Helper()
	pause := time.NewTimer(time.Second)
	<-pause.C
	pid, err := pg.TryQuery(t.Context(), "SELECT process FROM effect ORDER BY n DESC LIMIT 1")
	reader := consumers[n%2]
	for _, p := range consumers {
		if err == nil && pid == fmt.Sprint(p.command.Process.Pid) {
			reader = p
		}
	}
	switch n % 4 {
	case 0, 2:
		reader.kill()
		reader.start()
	case 1: // for longer than its lease
		reader.signal(syscall.SIGSTOP)
		pause.Reset(7 * time.Second)
		<-pause.C
		reader.signal(syscall.SIGCONT)
	case 3:
		if b.server == nil {
			if err := pg.Server.Kill9(); err != nil {
				t.Error(err)
			}
			if err := pg.Server.Start(t.Context()); err != nil {
				t.Error(err)
			}
			return
		}
		b.server.Kill9()
		b.server.Start(t)
	}
}

// A bad event parks its key and becomes a dead letter, a replay brings it back; a stop in good order hands over at one
// position, and the process that stands by goes on at once. Nothing is delivered again.
func TestSourcesParkReplayAndHandOver(t *testing.T) {
	t.Parallel()
	eachBroker(t, func(t *testing.T, b *broker) {
		pg := harness.Postgres(t)
		pg.Exec(t, effects)
		config := inbox.Config{Source: b.source(t), Retry: inbox.Retry{MaxAttempts: 4, InitialBackoff: 20 * time.Millisecond,
			MaxBackoff: 50 * time.Millisecond, ParkAfter: 1}}
		one, two := &tally{}, &tally{}
		well := make(chan struct{})
		register := func(c *inbox.Consumer) {
			inbox.On(c, "OrderPlaced", func(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
				select {
				case <-well:
				default:
					if e.Payload.Fails != "" {
						return errors.New("no such customer")
					}
				}
				return apply(ctx, tx, e)
			})
		}
		config.Metrics = one
		first, stop := start(t, newPool(t, pg.URL, 6), config, register)
		b.publish(t, event(b.topic, 0, 1))
		until(t, pg, "SELECT count(*) FROM effect", "1")
		config.Metrics, config.Source = two, b.source(t)
		second, stopSecond := start(t, newPool(t, pg.URL, 6), config, register)
		ready(t, first)
		ready(t, second)
		const bad = 17
		var records []*kgo.Record
		for n := 1; n < 200; n++ {
			r := event(b.topic, n, 10)
			if n == bad {
				r.Value = fmt.Appendf(nil, `{"seq": %d, "fails": "always"}`, n)
			}
			records = append(records, r)
		}
		b.publish(t, records[:100]...)
		until(t, pg, "SELECT string_agg(class || attempts, ' ') FROM inbox_dead", "exhausted4")
		until(t, pg, "SELECT count(*) FROM effect", "100")
		lagIs(t, first, 0)
		stop()
		b.publish(t, records[100:]...)
		until(t, pg, "SELECT count(*) FROM effect", "199")
		ready(t, second)
		close(well)
		id := fmt.Sprintf("019aa7e4-0000-7000-8000-%012x", bad)
		if done, err := second.Replay(t.Context(), id, "alice", "customer made"); err != nil || !done {
			t.Fatalf("replay: got %v, %v, want true", done, err)
		}
		until(t, pg, "SELECT count(*) FROM effect", "200")
		stopSecond()
		pg.Exec(t, "DELETE FROM effect WHERE event = '"+id+"'") // it came late
		judge(t, pg, 199)
		if n := one.redelivered.Load() + two.redelivered.Load(); n != 0 {
			t.Errorf("events delivered again: got %d, want none", n)
		}
	})
}

func lagIs(t *testing.T, c *inbox.Consumer, want int64) {
	t.Helper()
	harness.Eventually(t, 30*time.Second, "the lag is known", func(context.Context) string {
		if st := c.Status(); !st.LagKnown || st.LagMax != want {
			return fmt.Sprintf("%+v", st)
		}
		return ""
	})
}
