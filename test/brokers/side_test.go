package brokers_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/cutproxy"
	"github.com/cdc-relay/cdc-relay/test/embedded/child"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

var (
	sideFlag   = flag.String("side", "", "the relay beside others, of these sinks, by commas, or all")
	sideEvents = flag.Int("side.events", 100_000, "events of the backlog; for rabbitmq, bullmq and webhook a third, "+
		"and of it a tenth for Debezium Server's webhooks; for sqs a tenth")
	sideKills = flag.Int("side.kills", 10, "kills of each, with three times as many cuts")
)

// drainPatience bounds the time for a backlog, from its first event on.
const drainPatience = 10 * time.Minute

// sinks are those that have a plain loop beside them.
var sinks = []string{"nats", "redis-stream", "rabbitmq-stream", "rabbitmq", "bullmq", "webhook", "sqs"}

// The contestants.
const (
	relayName    = "relay"
	loopName     = "plain loop"
	debeziumName = "Debezium Server"
)

// side is a broker, and how the relay, and then the loop, get there.
type side struct {
	addr, direct string // through a proxy, and not; the loop's
	proxies      []*cutproxy.Plain
	settings     func(addr string) []any // of the relay
	relayAddr    [2]string               // as addr and direct
	begin        func(topic string)      // makes the topic
	target       func(topic string) target
	read         func(topic string) []message
	readDebezium func(topic string) []message // nil: as the others' messages
}

// contestant is the relay, the loop or Debezium Server, a process.
type contestant interface {
	Kill9()
	PID() int
	start()
}

type relayBeside struct {
	*harness.Relay
	t testing.TB
}

func (r relayBeside) start() { r.Start(r.t) }

type loopBeside struct {
	t       testing.TB
	config  child.Config
	process *child.Process
}

func (l *loopBeside) start() {
	process, err := child.Start(l.config)
	if err != nil {
		l.t.Fatal(err)
	}
	l.process = process
	l.t.Cleanup(process.Kill)
}

func (l *loopBeside) Kill9()   { l.process.Kill() }
func (l *loopBeside) PID() int { return l.process.PID() }

// enter makes a contestant with a database of its own, and starts nothing.
func (s side) enter(t *testing.T, name, sink string, proxied bool) (contestant, *harness.PG, string) {
	t.Helper()
	n := 1
	if proxied {
		n = 0
	}
	pg := harness.Postgres(t)
	settings := scenario{settings: s.settings(s.relayAddr[n])}.prepare(t, pg)
	topic := settings.Topic("order")
	s.begin(topic)
	relay := harness.StartRelay(t, settings) // makes the tables
	relay.Stop(t)
	switch name {
	case relayName:
		return relayBeside{relay, t}, pg, topic
	case debeziumName:
		return newDebezium(t, sink, s.relayAddr[n], pg, settings), pg, topic
	}
	pg.Exec(t, fmt.Sprintf("SELECT pg_drop_replication_slot('%s')", settings.Slot()))
	pg.Exec(t, "CREATE INDEX unpublished ON outbox_events (seq) WHERE published_at IS NULL")
	orders, err := json.Marshal(loop{Sink: sink, Broker: [2]string{s.addr, s.direct}[n], Database: pg.URL, Topic: topic})
	if err != nil {
		t.Fatal(err)
	}
	l := &loopBeside{t: t, config: child.Config{DeathSignal: syscall.SIGKILL,
		Env: append(os.Environ(), loopVariable+"="+string(orders))}}
	if l.config.Path, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	if sink == "bullmq" {
		l.config = harness.NewScript(t, "test/node/loop.js", []string{loopVariable + "=" + string(orders)}).Config()
	}
	return l, pg, topic
}

// figures are the results of one.
type figures struct {
	rate, cpu               float64 // events per second; CPU seconds per million events
	p50                     time.Duration
	lost, doubled, disorder int
	events                  int // in the faults
	stuck                   int // how often it had to be killed to go on
}

// TestSideBySide prints a table of the relay beside a plain loop of each broker's own client, and beside Debezium
// Server where that has a sink for the broker: make bench-brokers. It passes no sentence on either. Seen to fail with a
// loop that marks nothing.
func TestSideBySide(t *testing.T) {
	if *sideFlag == "" {
		t.Skip("nothing to measure: make bench-brokers gives -side")
	}
	table := []string{"| sink | | events/s | CPU s per million | p50 at 200/s | lost | doubled | out of order | load |",
		"|---|---|---|---|---|---|---|---|---|"}
	for _, sink := range sinks {
		if *sideFlag != "all" && !slices.Contains(strings.Split(*sideFlag, ","), sink) {
			continue
		}
		s := stage(t, sink)
		for _, name := range []string{relayName, loopName, debeziumName} {
			if name == debeziumName && debeziumSink(t, sink, s.direct, "") == nil {
				continue // it has no such sink
			}
			t.Run(sink+", "+name, func(t *testing.T) {
				var f figures
				s.drain(t, name, sink, &f)
				s.faults(t, name, sink, &f)
				table = append(table, fmt.Sprintf("| %s | %s | %.0f | %.0f | %.1f ms | %d | %d of %d | %d | %s |", sink, name,
					f.rate, f.cpu, float64(f.p50.Microseconds())/1000, f.lost, f.doubled, f.events, f.disorder,
					harness.LoadAverage()))
			})
		}
	}
	t.Log("\n" + strings.Join(table, "\n"))
}

// drain has a backlog worked off, and then publishes 200 events a second.
func (s side) drain(t *testing.T, name, sink string, f *figures) {
	c, pg, topic := s.enter(t, name, sink, false)
	n := *sideEvents
	switch sink {
	case "rabbitmq", "bullmq", "webhook":
		n /= 3
	case "sqs":
		n /= 10 // ElasticMQ copies a list of all at each message
	}
	if sink == "webhook" && name == debeziumName {
		n /= 10 // it posts one event at a time
	}
	conn := pg.Connect(t)
	for from := 1; from <= n; from += 500 {
		if _, err := conn.Exec(t.Context(), inserted, from, min(from+499, n)); err != nil {
			t.Fatal(err)
		}
	}
	target := s.target(topic)
	c.start()
	defer c.Kill9()
	looks := time.NewTicker(5 * time.Millisecond)
	defer looks.Stop()
	first, begun, used := 0, time.Now(), time.Duration(0)
	for there := target.count(); there < n; there = target.count() {
		if time.Since(begun) > drainPatience {
			t.Fatalf("the backlog is not worked off: %d of %d are there", there, n)
		}
		if first == 0 && there > 0 {
			first, begun, used = there, time.Now(), harness.CPU(c.PID())
		}
		<-looks.C
	}
	f.rate = float64(n-first) / time.Since(begun).Seconds()
	if name != debeziumName { // which marks none
		awaitDone(t, pg)
	}
	f.cpu = (harness.CPU(c.PID()) - used).Seconds() / float64(n-first) * 1e6

	const paced = 600
	came := make(chan time.Time, 1)
	target.follow(func() { came <- time.Now() })
	ticks := time.NewTicker(5 * time.Millisecond)
	defer ticks.Stop()
	latencies := make([]time.Duration, 0, paced)
	for i := range paced {
		<-ticks.C
		committed := time.Now()
		if _, err := conn.Exec(t.Context(), inserted, n+i+1, n+i+1); err != nil {
			t.Fatal(err)
		}
		latencies = append(latencies, (<-came).Sub(committed))
	}
	slices.Sort(latencies)
	f.p50 = latencies[paced/2]
}

// awaitDone waits until all rows are marked as published.
func awaitDone(t *testing.T, pg *harness.PG) {
	t.Helper()
	harness.Eventually(t, 3*time.Minute, "all rows are marked", func(ctx context.Context) string {
		left, err := pg.TryQuery(ctx, "SELECT count(*) FROM outbox_events WHERE published_at IS NULL")
		if err != nil || left != "0" {
			return fmt.Sprint(left, err)
		}
		return ""
	})
}

// faults kills the contestant and cuts its connections while events are written, and counts what the broker has.
func (s side) faults(t *testing.T, name, sink string, f *figures) {
	c, pg, topic := s.enter(t, name, sink, true)
	target := s.target(topic)
	c.start()
	defer func() { c.Kill9() }()
	conn := pg.Connect(t)
	const apart = 500 // events between cuts
	f.events = (3**sideKills + 1) * apart
	done := make(chan struct{})
	go func() {
		defer close(done)
		pace := time.NewTicker(10 * time.Millisecond)
		defer pace.Stop()
		for n := range f.events / rows {
			write(t, conn, n, n+1)
			<-pace.C
		}
	}()
	for kill := range *sideKills {
		for cut := range 3 {
			f.stuck += awaitCount(t, c, target, (3*kill+cut+1)*apart)
			for _, p := range s.proxies {
				if cut == 0 {
					p.LoseAnswers(1)
				} else {
					p.Cut()
				}
			}
		}
		c.Kill9()
		c.start()
	}
	<-done
	read := s.read
	if name != debeziumName {
		awaitDone(t, pg)
	} else {
		awaitQuiet(target)
		c.Kill9() // what it had not noted as published comes again: what is still missing is lost
		c.start()
		awaitQuiet(target)
		t.Logf("Debezium Server ended by itself %d times, and was killed %d times because it stood still",
			c.(debeziumBeside).Ends(), f.stuck)
		if s.readDebezium != nil {
			read = s.readDebezium
		}
	}
	f.count(t, read(topic))
}

// awaitCount waits until n are there. Debezium Server is killed and started again when it stands still, as by someone
// who is called: how often is returned.
func awaitCount(t *testing.T, c contestant, topic target, n int) (stuck int) {
	t.Helper()
	const still, patience = 30 * time.Second, 10
	last, since := -1, time.Now()
	looks := time.NewTicker(20 * time.Millisecond)
	defer looks.Stop()
	for there := topic.count(); there < n; there = topic.count() {
		switch _, is := c.(debeziumBeside); {
		case there != last:
			last, since = there, time.Now()
		case time.Since(since) < still:
		case !is || stuck == patience:
			t.Fatalf("events are not published: %d of %d are there", there, n)
		default:
			stuck, since = stuck+1, time.Now()
			c.Kill9()
			c.start()
		}
		<-looks.C
	}
	return stuck
}

// count counts what is lost, doubled and out of order: an event that comes first behind a later one of its key.
func (f *figures) count(t *testing.T, found []message) {
	t.Helper()
	last, seen := map[int]int{}, map[int]bool{} // by the number; write derives the key from it
	for _, m := range found {
		var body struct {
			N *int `json:"n"`
		}
		if err := json.Unmarshal(m.payload, &body); err != nil || body.N == nil {
			t.Fatalf("payload %q: no number, %v", m.payload, err)
		}
		n := *body.N
		switch {
		case seen[n]:
			f.doubled++
		case n < last[n%keys]:
			f.disorder++
		}
		seen[n], last[n%keys] = true, max(last[n%keys], n)
	}
	f.lost = f.events - len(seen)
}
