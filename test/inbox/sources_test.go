package inbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

// The database is set back to an older copy while its consumer runs. A log fills it up again; a queue does not hold
// what was acknowledged, and the consumer says so. What is published later is handled in both cases. At night with each
// broker.
func TestSourcesFillADatabaseUpThatWasSetBack(t *testing.T) {
	t.Parallel()
	eachBroker(t, func(t *testing.T, b *broker) {
		pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{})
		pg.Exec(t, effects)
		var said protocol
		_, stop := start(t, newPool(t, pg.URL, 6), inbox.Config{Source: b.source(t), Log: newLog(&said)}, onOrder)
		send := func(from, to int) {
			t.Helper()
			var records []*kgo.Record
			for n := from; n < to; n++ {
				records = append(records, event(b.topic, n, 5))
			}
			b.publish(t, records...)
		}
		send(0, 60)
		until(t, pg, "SELECT count(*) FROM effect", "60")
		swapBack(t, pg, func() {
			send(60, 120)
			until(t, pg, "SELECT count(*) FROM effect", "120")
		})
		send(120, 160)
		want := 160
		if b.isQueue() {
			want = 100
		}
		until(t, pg, "SELECT count(*) FROM effect", fmt.Sprint(want))
		stop()
		judge(t, pg, want)
		if text := said.text(); b.isQueue() != strings.Contains(text, "does not hold what was acknowledged") {
			t.Errorf("log: got %s", text)
		}
	}, "nats", "rabbitmq-queue")
}

// swapBack takes a copy of the database, and puts it in its place after more was done.
func swapBack(t *testing.T, pg *harness.PG, more func()) {
	t.Helper()
	data := filepath.Join(pg.Server.Dir(), "data")
	restarted := func(do func()) {
		t.Helper()
		if err := pg.Server.Fast(t.Context()); err != nil {
			t.Fatal(err)
		}
		do()
		if err := pg.Server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	restarted(func() { run(t, "cp", "-a", data, data+".older") })
	more()
	restarted(func() {
		if err := os.RemoveAll(data); err != nil {
			t.Fatal(err)
		}
		run(t, "cp", "-a", data+".older", data)
	})
}

// An event ends its process each time: it is set aside, and all others are done. At night with each broker.
func TestSourcesSetAsideAnEventThatKillsItsProcess(t *testing.T) {
	t.Parallel()
	eachBroker(t, func(t *testing.T, b *broker) {
		pg := harness.Postgres(t)
		pg.Exec(t, effects)
		const events, bad = 100, 40
		var records []*kgo.Record
		for n := range events {
			r := event(b.topic, n, 10)
			if n == bad {
				r.Value = fmt.Appendf(nil, `{"seq": %d, "fails": "kill"}`, n)
			}
			records = append(records, r)
		}
		b.publish(t, records...)
		p := startProcess(t, childConfig{URL: pg.URL, Brokers: []string{b.addr}, Broker: b.name, Topic: b.topic})
		deaths := 0
		for ; deaths < 3; deaths++ {
			_ = p.command.Wait()
			p.start()
		}
		until(t, pg, "SELECT count(*) FROM inbox_event WHERE state <> 1", fmt.Sprint(events))
		p.stop()
		if got := pg.Query(t, "SELECT string_agg(class, ' ') FROM inbox_dead"); got != "process" {
			t.Errorf("dead letters: got %s, want the one that kills", got)
		}
		judge(t, pg, events-1)
	}, "rabbitmq-queue")
}
