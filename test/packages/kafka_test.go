package packages

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

const (
	keys       = 40
	partitions = 3
)

// flow is a topic that drivers read, and what was written to it.
type flow struct {
	*world
	kafka  *harness.Cluster
	topic  string
	client *kgo.Client
	sent   int
	never  int // of these, how many always fail
}

func newFlow(t *testing.T, w *world) *flow {
	t.Helper()
	f := &flow{world: w, kafka: harness.Kafka(t), topic: harness.Unique(t, "orders")}
	f.kafka.CreateTopic(t, f.topic, partitions, nil)
	client, err := kgo.NewClient(kgo.SeedBrokers(f.kafka.Addrs...),
		kgo.ProducerBatchCompression(kgo.NoCompression())) // kafkajs has no other but gzip built in
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	f.client = client
	return f
}

// send writes events of all keys: some fail once, and some always.
func (f *flow) send(t *testing.T, n int) {
	t.Helper()
	values := make([]object, n)
	for i := range values {
		values[i] = object{}
		switch number := f.sent + i + 1; {
		case number%97 == 0:
			values[i]["fails"] = "permanent"
			f.never++
		case number%31 == 0:
			values[i]["fails"], values[i]["until"] = "swallowed", 1
		}
	}
	f.produce(t, values...)
}

// produce writes events with numbers in their payloads.
func (f *flow) produce(t *testing.T, values ...object) {
	t.Helper()
	records := make([]*kgo.Record, len(values))
	for i, value := range values {
		f.sent++
		value["n"] = f.sent
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		headers := []kgo.RecordHeader{{Key: "id", Value: []byte(id(f.sent))}, {Key: "event_type", Value: []byte("Effect")}}
		records[i] = &kgo.Record{Topic: f.topic, Key: fmt.Append(nil, "k", f.sent%keys), Value: text, Headers: headers}
	}
	if err := f.client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// run starts a driver that reads the topic.
func (f *flow) run(t *testing.T) *driver {
	t.Helper()
	d := f.start(t, nil)
	// The group has the topic's name: languages run beside each other on one cluster.
	answer := d.do(object{
		"op": "run", "brokers": f.kafka.Addrs, "topics": []string{f.topic}, "group": f.topic, "workers": 4,
	})
	if answer["error"] != nil {
		t.Fatalf("run: %v", answer["error"])
	}
	return d
}

// decided waits until so many events have their effect or are dead letters, for as long as some get there.
func (f *flow) decided(t *testing.T, n int, drivers ...*driver) {
	t.Helper()
	t.Cleanup(func() {
		for _, d := range drivers {
			if t.Failed() {
				d.kill()
				log := d.err.String()
				t.Logf("the end of a driver's log: %s", log[max(0, len(log)-4000):])
			}
		}
	})
	for decided := -1; decided < n; {
		before, what := decided, fmt.Sprintf("more than %d events are decided", decided)
		harness.Eventually(t, time.Minute, what, func(ctx context.Context) string {
			got, err := f.pg.TryQuery(ctx, "SELECT count(*) FROM inbox_event WHERE state IN (0, 2)")
			if decided, _ = strconv.Atoi(got); err != nil || decided <= before {
				return fmt.Sprintf("got %s (%v), want %d", got, err, n)
			}
			return ""
		})
	}
}

// judge compares the effects with what was sent: each once, in the order of its key.
func (f *flow) judge(t *testing.T) {
	t.Helper()
	for _, c := range []struct{ what, sql, want string }{
		{"effects, different", "SELECT count(*) || ' ' || count(DISTINCT n) FROM effect",
			fmt.Sprint(f.sent-f.never, f.sent-f.never)},
		{"out of order", `SELECT count(*) FROM (SELECT n, lag(n) OVER (PARTITION BY key ORDER BY number) AS before
			FROM effect) e WHERE n < before`, "0"},
		{"dead letters, of other classes", "SELECT count(*) || ' ' || count(*) FILTER (WHERE class <> 'permanent') " +
			"FROM inbox_dead", fmt.Sprint(f.never, 0)},
		{"parked", "SELECT count(*) FROM inbox_parked", "0"},
	} {
		if got := f.pg.Query(t, c.sql); got != c.want {
			t.Errorf("%s: got %s, want %s", c.what, got, c.want)
		}
	}
}

// A member joins while a handler of another one runs, which ends as soon as the new one has its partitions. Breaks it
// catches: a member that reads no more, as its partitions were paused when they were revoked, or that ends.
func TestARebalanceBesideAHandlerStopsNoMember(t *testing.T) {
	harness.Full(t)
	alone := func(t testing.TB) *harness.PG { // a slot is not created beside the transactions that stay open here
		return harness.NewOwnPostgres(t, embedded.PostgresConfig{})
	}
	eachOn(t, alone, func(t *testing.T, w *world) {
		f := newFlow(t, w)
		running := []*driver{f.run(t)}
		await := func(what, query, want string) {
			harness.Eventually(t, time.Minute, what, func(ctx context.Context) string {
				got, err := f.pg.TryQuery(ctx, query)
				if err != nil || got != want {
					return fmt.Sprint(got, err)
				}
				return ""
			})
		}
		conn := f.pg.Connect(t)
		lock, err := conn.Begin(t.Context())
		if err == nil {
			_, err = lock.Exec(t.Context(), "LOCK TABLE effect IN SHARE MODE")
		}
		if err != nil {
			t.Fatal(err)
		}
		f.send(t, 1)
		await("the handler runs", `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND query LIKE 'INSERT INTO effect%' AND wait_event_type = 'Lock'`, "1")
		running = append(running, f.run(t))
		await("both have partitions", "SELECT count(DISTINCT holder) FROM inbox_offset", "2")
		if err := lock.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.send(t, 400)
		f.decided(t, f.sent, running...)
		f.judge(t)
	})
}

// Two processes of a group share a topic, and one after the other is killed.
func TestKilledConsumersLoseAndDoubleNothing(t *testing.T) {
	harness.Full(t)
	kills := harness.Count(t, "kills of a package")
	if kills == 0 {
		t.Skip("at night")
	}
	each(t, func(t *testing.T, w *world) {
		f := newFlow(t, w)
		running := []*driver{f.run(t), f.run(t)}
		f.send(t, 200)
		f.decided(t, 1, running...)
		for n := range kills {
			before := f.sent
			f.send(t, 600)
			f.decided(t, before+50*(n%5)) // in the middle of what was sent
			running[n%2].kill()
			running[n%2] = f.run(t)
		}
		f.decided(t, f.sent, running...)
		f.judge(t)
		for _, d := range running {
			if answer := d.do(object{"op": "stop"}); answer["error"] != nil {
				t.Errorf("stop: %v", answer["error"])
			}
		}
		if got := f.pg.Query(t, "SELECT count(*) FROM inbox_offset WHERE holder IS NOT NULL"); got != "0" {
			t.Errorf("partitions that are not released after a stop: got %s, want 0", got)
		}
	})
}

// The tables are set back beneath a running consumer, while it is idle and while it handles: what the topic has is
// handled again.
func TestARestoredDatabaseIsFilledUpAgain(t *testing.T) {
	harness.Full(t)
	if harness.Count(t, "restores beneath a package") == 0 {
		t.Skip("at night")
	}
	each(t, func(t *testing.T, w *world) {
		f := newFlow(t, w)
		d := f.run(t)
		f.send(t, 300)
		f.setBack(t, d, f.send)
	})
}

// setBack sets the tables back to what they are when all that was sent is decided: once beneath an idle consumer, and
// once while it handles.
func (f *flow) setBack(t *testing.T, d *driver, send func(t *testing.T, n int)) {
	t.Helper()
	f.decided(t, f.sent, d)
	back := f.keep(t)
	send(t, 600)
	f.decided(t, f.sent, d)
	f.pg.Exec(t, back) // idle
	f.decided(t, f.sent, d)
	f.judge(t)
	f.pg.Exec(t, back)
	send(t, 900)
	f.decided(t, f.sent-800, d)
	f.pg.Exec(t, back) // running
	f.decided(t, f.sent, d)
	f.judge(t)
}

// keep copies the tables, and returns a statement that sets them back to the copy.
func (w *world) keep(t *testing.T) (back string) {
	t.Helper()
	tables := []string{"effect", "inbox_event", "inbox_parked", "inbox_dead", "inbox_offset", "inbox_suspect"}
	w.pg.Exec(t, "CREATE SCHEMA older")
	back = "DO $$ BEGIN LOOP BEGIN LOCK TABLE " + strings.Join(tables, ", ") + " NOWAIT; EXIT; " +
		"EXCEPTION WHEN lock_not_available THEN PERFORM pg_sleep(0.002); END; END LOOP; "
	for _, table := range tables {
		w.pg.Exec(t, fmt.Sprintf("CREATE TABLE older.%[1]s AS TABLE %[1]s", table))
		back += fmt.Sprintf("DELETE FROM %[1]s; INSERT INTO %[1]s OVERRIDING SYSTEM VALUE TABLE older.%[1]s; ", table)
	}
	return back + "END $$"
}
