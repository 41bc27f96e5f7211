package inbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// The database is set back to an older copy while its consumers run: what they have done since is done again, in order,
// for both the events of the copy and those behind it; at night twenty times. Seen to fail with a start that trusts
// Kafka's offset alone, and with claims that take any server.
func TestADatabaseThatWasSetBackIsFilledUpAgain(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	for range count(1, 20) {
		setBackOnce(t)
	}
}

func setBackOnce(t *testing.T) {
	t.Helper()
	pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{})
	pg.Exec(t, effects)
	addrs, topic := topicOf(t, 3)
	const keys = 5
	send := func(from, to int) {
		t.Helper()
		var records []*kgo.Record
		for n := from; n < to; n++ {
			records = append(records, event(topic, n, keys))
		}
		produce(t, addrs, records...)
	}
	_, stop := start(t, newPool(t, pg.URL, 6), inbox.Config{Brokers: addrs, Topics: []string{topic}}, onOrder)
	send(0, 60)
	until(t, pg, "SELECT sum(next_offset) FROM inbox_offset", "60")
	data := filepath.Join(pg.Server.Dir(), "data")
	older := data + ".older"
	stopServer := func() {
		t.Helper()
		if err := pg.Server.Fast(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	startServer := func() {
		t.Helper()
		if err := pg.Server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stopServer()
	run(t, "cp", "-a", data, older)
	startServer()
	send(60, 180)
	until(t, pg, "SELECT sum(next_offset) FROM inbox_offset", "180")
	stopServer()
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	run(t, "cp", "-a", older, data)
	startServer()
	send(180, 240)
	until(t, pg, "SELECT count(*) FROM effect", "240")
	stop()
	judge(t, pg, 240)
	stopServer()
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}

// An outage of what handlers need costs no event an attempt, however long it is: two probes in CI, ten minutes at
// night. Seen to fail with outages that count.
func TestAnOutageCountsNoAttempt(t *testing.T) {
	t.Parallel()
	pg := harness.Postgres(t)
	pg.Exec(t, effects)
	addrs, topic := topicOf(t, 3)
	const events, keys = 200, 20
	var records []*kgo.Record
	for n := range events {
		records = append(records, event(topic, n, keys))
	}
	produce(t, addrs, records...)
	var away atomic.Bool
	var asked, highest atomic.Int64
	away.Store(true)
	c, stop := start(t, newPool(t, pg.URL, 6), inbox.Config{Brokers: addrs, Topics: []string{topic}},
		func(c *inbox.Consumer) {
			inbox.On(c, "OrderPlaced", func(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
				asked.Add(1)
				highest.Store(max(highest.Load(), int64(e.Attempt)))
				if away.Load() {
					return inbox.Outage(errors.New("the billing service is away"))
				}
				return apply(ctx, tx, e)
			})
		})
	harness.Eventually(t, 30*time.Second, "the breaker opens", func(context.Context) string {
		if st := c.Status(); !st.BreakerOpen || c.Ready() == nil {
			return fmt.Sprintf("%+v, ready: %v", st, c.Ready())
		}
		return ""
	})
	before, began, outage := asked.Load(), time.Now(), time.Duration(count(0, 600))*time.Second
	harness.Eventually(t, 30*time.Second+outage, "probes", func(context.Context) string {
		if asked.Load() < before+2 || time.Since(began) < outage {
			return "not long enough yet"
		}
		return ""
	})
	// From one a second to one in ten seconds.
	if more, most := asked.Load()-before, int64(4+outage/(8*time.Second)); more > most {
		t.Errorf("handlers called while the breaker is open: got %d, want a probe now and then, at most %d", more, most)
	}
	away.Store(false)
	until(t, pg, "SELECT count(*) FROM effect", fmt.Sprint(events))
	stop()
	if highest.Load() != 1 {
		t.Errorf("attempts: got %d, want 1", highest.Load())
	}
	if got := pg.Query(t, "SELECT count(*) FROM inbox_dead"); got != "0" {
		t.Errorf("dead letters: got %s, want 0", got)
	}
	judge(t, pg, events)
}

// An event ends its process each time that it is handled: it is set aside after the third death, and all others are
// done; at night fifty times. Seen to fail with events that are not noted before they are begun.
func TestAnEventThatKillsItsProcessIsSetAside(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	for range count(1, 50) {
		killItsProcess(t)
	}
}

func killItsProcess(t *testing.T) {
	t.Helper()
	pg := harness.Postgres(t)
	pg.Exec(t, effects)
	addrs, topic := topicOf(t, 3)
	const events, keys = 300, 30
	var records []*kgo.Record
	for n := range events {
		record := event(topic, n, keys)
		if n == 100 {
			record = eventOf(topic, "k10", "019aa7e4-0000-7000-8000-000000000064", payload{Seq: 100, Fails: "kill"})
		}
		records = append(records, record)
	}
	produce(t, addrs, records...)
	p := startProcess(t, childConfig{URL: pg.URL, Brokers: addrs, Topic: topic})
	deaths := 0
	ended := make(chan error, 1)
	wait := func() { ended <- p.command.Wait() }
	go wait()
	deadline := time.NewTimer(90 * time.Second)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for left := true; left; {
		select {
		case <-deadline.C:
			t.Fatalf("after %d deaths it is not done", deaths)
		case <-ended:
			deaths++
			p.start()
			go wait()
		case <-tick.C:
			got, err := pg.TryQuery(t.Context(), "SELECT count(*) FROM inbox_event")
			left = err != nil || got != fmt.Sprint(events)
		}
	}
	p.signal(syscall.SIGTERM)
	<-ended
	if deaths != 3 {
		t.Errorf("deaths of the process: got %d, want 3", deaths)
	}
	if got := pg.Query(t, "SELECT string_agg(event_id || ' ' || class, ',') FROM inbox_dead"); got !=
		"019aa7e4-0000-7000-8000-000000000064 process" {
		t.Errorf("dead letters: got %s, want the one that kills", got)
	}
	judge(t, pg, events-1)
}
