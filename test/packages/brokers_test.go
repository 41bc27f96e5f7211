package packages

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// source is a broker that a package reads, besides Kafka.
type source struct {
	start    func(*testing.T) (url string, restart func())
	settings func(url string) []any
	init     string // the option of init that creates what consumers need
}

var sources = map[string]source{
	"nats": {
		start: func(t *testing.T) (string, func()) {
			t.Helper()
			s := harness.NATS(t)
			return s.URL, func() { s.Kill9(); s.Start(t) }
		},
		settings: func(url string) []any { return []any{"nats.url", url, "nats.create_streams.enabled", true} },
	},
	"redis-stream": {
		start:    startRedis,
		settings: func(url string) []any { return []any{"redis.url", url} },
	},
	"rabbitmq": {
		start: func(t *testing.T) (string, func()) {
			t.Helper()
			s := harness.RabbitMQ(t)
			return "amqp://guest:guest@" + s.Addr + "/?heartbeat=2", func() { s.Ctl(t, "close_all_connections", "test") }
		},
		settings: func(url string) []any { return []any{"rabbitmq.url", strings.TrimSuffix(url, "?heartbeat=2")} },
		init:     "--rabbitmq-topology",
	},
	"bullmq": {
		start:    startRedis,
		settings: func(url string) []any { return []any{"redis.url", url, "bullmq.version", 5} },
	},
}

func startRedis(t *testing.T) (url string, restart func()) {
	t.Helper()
	s := harness.Redis(t, "--appendfsync", "always")
	return "redis://" + s.Addr, func() { s.Kill9(); s.Start(t) }
}

// reads are the brokers that each package reads.
var reads = map[string][]string{
	"Java":       {"nats", "redis-stream", "rabbitmq"},
	"Python":     {"nats", "redis-stream", "rabbitmq"},
	"TypeScript": {"nats", "redis-stream", "rabbitmq", "bullmq"},
}

// brokerFlow is a relay that publishes to a broker, and drivers that read there.
type brokerFlow struct {
	*flow
	broker, url string
	restart     func() // of the broker, or of its connections
	outbox      *harness.PG
}

func newBrokerFlow(t *testing.T, w *world, broker string) *brokerFlow {
	t.Helper()
	s := sources[broker]
	f := &brokerFlow{flow: &flow{world: w}, broker: broker, outbox: harness.Postgres(t)}
	f.url, f.restart = s.start(t)
	settings := harness.NewSettings(t, f.outbox, nil).With(append(s.settings(f.url), "sink", broker)...)
	delete(settings, "kafka.brokers")
	delete(settings, "outbox.columns.headers")
	f.topic = settings.Topic("order")
	if s.init != "" {
		settings = settings.With("rabbitmq.consumers",
			fmt.Sprintf("{%[1]s: {exchanges: [%[1]s], single_active: true}}", f.topic))
	}
	relay := harness.NewRelay(t, settings)
	relay.Init(t)
	if s.init != "" {
		if code, _, said := relay.Run(t, "init", s.init); code != 0 {
			t.Fatalf("init %s: exit code %d: %s", s.init, code, said)
		}
	}
	relay.Start(t)
	relay.WaitReady(t, time.Minute)
	return f
}

// emit writes events of all keys: some fail once, and some always.
func (f *brokerFlow) emit(t *testing.T, n int) {
	t.Helper()
	f.outbox.Exec(t, fmt.Sprintf(insertEvents, keys, fmt.Sprint(f.sent+1), fmt.Sprint(f.sent+n)))
	f.never += (f.sent+n)/97 - f.sent/97
	f.sent += n
}

const insertEvents = `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
	SELECT 'order', 'k' || n %% %d, 'Effect', CASE WHEN n %% 97 = 0 THEN jsonb_build_object('n', n, 'fails', 'permanent')
		WHEN n %% 31 = 0 THEN jsonb_build_object('n', n, 'fails', 'swallowed', 'until', 1)
		ELSE jsonb_build_object('n', n) END
	FROM generate_series(%s, %s) n ORDER BY n`

func (f *brokerFlow) read(t *testing.T) *driver {
	t.Helper()
	d := f.start(t, nil)
	answer := d.do(object{"op": "run", "broker": f.broker, "url": f.url, "topics": []string{f.topic}, "workers": 4})
	if answer["error"] != nil {
		t.Fatalf("run: %v", answer["error"])
	}
	return d
}

// onBrokers runs a test in each language, on each broker that its package reads, but for some.
func onBrokers(t *testing.T, test func(t *testing.T, f *brokerFlow), but ...string) {
	t.Helper()
	for language, brokers := range reads {
		for _, broker := range brokers {
			if slices.Contains(but, broker) {
				continue
			}
			t.Run(language+"/"+broker, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, harness.Postgres(t), languages[language](t))
				test(t, newBrokerFlow(t, w, broker))
			})
		}
	}
}

// Two processes share a queue or stream that a relay fills. The one that reads is killed, and the other one takes over;
// then a process stops in good order. Breaks it catches: an acknowledgement before the commit; a successor that reads
// before it has back what the dead one had, or that gets it back in another order.
func TestKilledConsumersOfBrokersLoseAndDoubleNothing(t *testing.T) {
	harness.Full(t)
	kills := harness.Count(t, "kills before another broker")
	onBrokers(t, func(t *testing.T, f *brokerFlow) {
		f.pg.Exec(t, slow)
		f.emit(t, 1) // a stream exists from now on
		running := []*driver{f.read(t), nil}
		f.decided(t, 1, running[0])
		running[1] = f.read(t)
		for n := range kills {
			before := f.sent
			f.emit(t, 300)
			f.decided(t, before+40*(n%5), running...) // in the middle of what was emitted
			former := f.pg.Query(t, holder)
			running[n%2].kill()
			if kills == 1 { // in CI, which does not wait for the lease to end
				f.pg.Exec(t, "UPDATE inbox_offset SET at = now() - interval '1 minute'")
			}
			harness.Eventually(t, time.Minute, "the other process takes over", func(ctx context.Context) string {
				if now, err := f.pg.TryQuery(ctx, holder); err != nil || now == former {
					return fmt.Sprintf("the holder is %s (%v): %.2000s", now, err, running[1-n%2].err)
				}
				return ""
			})
			running[n%2] = f.read(t)
		}
		f.decided(t, f.sent, running...)
		f.judge(t)
		for _, d := range running {
			if answer := d.do(object{"op": "stop"}); answer["error"] != nil {
				t.Errorf("stop: %v", answer["error"])
			}
		}
		if got := f.pg.Query(t, "SELECT count(*) FROM inbox_offset WHERE holder IS NOT NULL"); got != "0" {
			t.Errorf("topics that are not released after a stop: got %s, want 0", got)
		}
		f.emit(t, 20)
		last := f.read(t)
		f.decided(t, f.sent, last) // at once: the topic was released
		f.judge(t)
		f.sameAsEmitted(t, last)
	})
}

// sameAsEmitted emits events with odd keys and without a payload, and compares what handlers had with the outbox.
func (f *brokerFlow) sameAsEmitted(t *testing.T, d *driver) {
	t.Helper()
	f.outbox.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload) VALUES
		('order', NULL, 'Effect', '{"n": -1}'), ('order', '', 'Effect', '{"n": -2}'),
		('order', 'o''\"é→😀;', 'Effect', '{"n": -3, "of": "é→😀"}'), ('order', 'none', 'Effect', NULL),
		('order', 'null', 'Effect', 'null')`)
	f.decided(t, f.sent+5, d)
	got := f.pg.Query(t, `SELECT string_agg(concat_ws(' ', id, key, n), e'\n' ORDER BY id COLLATE "C") FROM effect`)
	want := f.outbox.Query(t, `SELECT string_agg(concat_ws(' ', id, nullif(aggregate_id, ''), payload->>'n'), e'\n'
		ORDER BY id::text COLLATE "C") FROM outbox_events
		WHERE payload->>'fails' IS DISTINCT FROM 'permanent'`)
	if got != want {
		t.Errorf("what handlers had differs from what was emitted:\n%s\nwant\n%s", got, want)
	}
}

// The tables are set back beneath a running consumer, as with Kafka. Breaks it catches: a position that is kept in
// memory, or that is written behind what the database has.
func TestARestoredDatabaseIsFilledUpAgainFromALog(t *testing.T) {
	harness.Full(t)
	if harness.Count(t, "restores beneath a package") == 0 {
		t.Skip("at night")
	}
	onBrokers(t, func(t *testing.T, f *brokerFlow) {
		f.emit(t, 1)
		d := f.read(t)
		f.emit(t, 299)
		f.setBack(t, d, f.emit)
	}, "rabbitmq", "bullmq")
}

// The broker is killed and started again, or closes its connections, while a consumer handles. Breaks it catches: an
// error of a client that ends the process, or a reader that does not connect again.
func TestConsumersOutliveTheirBroker(t *testing.T) {
	harness.Full(t)
	if harness.Count(t, "restarts of a package's broker") == 0 {
		t.Skip("at night")
	}
	onBrokers(t, func(t *testing.T, f *brokerFlow) {
		f.pg.Exec(t, slow)
		f.emit(t, 1)
		d := f.read(t)
		f.decided(t, 1, d)
		for range 3 {
			before := f.sent
			f.emit(t, 300)
			f.decided(t, before+20, d)
			f.restart()
		}
		f.decided(t, f.sent, d)
		f.judge(t)
		if answer := d.do(object{"op": "stop"}); answer["error"] != nil {
			t.Errorf("stop: %v", answer["error"])
		}
	})
}

// The process that reads is frozen for longer than its lease, with messages in its hands, and wakes behind another one,
// or while that waits for what it has locked: an event, a key, or the topic between a note and its commit.
// Breaks it catches: one that goes on with what it had, ahead of what the other one does.
func TestAFrozenConsumerOfABrokerDisturbsNoOrder(t *testing.T) {
	harness.Full(t)
	if harness.Count(t, "restarts of a package's broker") == 0 {
		t.Skip("at night")
	}
	onBrokers(t, func(t *testing.T, f *brokerFlow) {
		f.pg.Exec(t, slow)
		f.emit(t, 1)
		frozen := f.read(t)
		f.decided(t, 1, frozen)
		other := f.read(t)
		for range 2 {
			before := f.sent
			f.emit(t, 400)
			f.decided(t, before+20, frozen, other)
			former := f.pg.Query(t, holder)
			frozen.signal(syscall.SIGSTOP)
			decided, froze := f.pg.Query(t, countDecided), f.pg.Query(t, "SELECT clock_timestamp()")
			const what = "the other process goes on, or waits for the frozen one"
			harness.Eventually(t, time.Minute, what, func(ctx context.Context) string {
				got, err := f.pg.TryQuery(ctx, `SELECT (`+holder+`) <> '`+former+`' AND (`+countDecided+`) > `+decided+`
					OR EXISTS (SELECT FROM `+sessions+` AND wait_event_type = 'Lock' AND query_start > '`+froze+`')`)
				if err != nil || got != "true" {
					all, _ := f.pg.TryQuery(ctx, `SELECT string_agg(concat_ws(' ', state, wait_event_type, wait_event,
						left(query, 80)), e'\n') FROM `+sessions)
					return fmt.Sprint(got, err, ", sessions: ", all)
				}
				return ""
			})
			f.emit(t, 200)
			frozen.signal(syscall.SIGCONT)
			f.decided(t, f.sent, frozen, other)
			frozen, other = other, frozen
		}
		f.judge(t)
	})
}

// The process that reads stops in good order while events arrive, and the next one begins. Breaks it catches: a client
// that gives younger messages back before older ones, as pika does when it closes a connection.
func TestStoppedConsumersOfABrokerDisturbNoOrder(t *testing.T) {
	harness.Full(t)
	stops := harness.Count(t, "stops before another broker")
	if stops == 0 {
		t.Skip("at night")
	}
	onBrokers(t, func(t *testing.T, f *brokerFlow) {
		f.pg.Exec(t, slow)
		f.emit(t, 1)
		reading := f.read(t)
		f.decided(t, 1, reading)
		for range stops {
			trickled := f.trickle(t, 800)
			f.decided(t, f.sent-600, reading)
			if answer := reading.do(object{"op": "stop"}); answer["error"] != nil {
				t.Errorf("stop: %v", answer["error"])
			}
			reading = f.read(t)
			if err := <-trickled; err != nil {
				t.Fatalf("emit: %v", err)
			}
		}
		f.decided(t, f.sent, reading)
		f.judge(t)
	})
}

// A queue is closed with messages in hand while others arrive, and opened again. Break it catches: younger messages
// that are back before older ones, as pika rejects what arrives while it cancels a consumer. Seen to fail with the
// connection just closed: in each run.
func TestAQueueGivesBackItsMessagesInOrder(t *testing.T) {
	t.Parallel()
	s := harness.RabbitMQ(t)
	command := exec.Command(harness.Program(t, "python3", "python3"), root("python/driver/order.py"),
		"amqp://guest:guest@"+s.Addr+"/")
	command.Env = append(os.Environ(), "PYTHONPATH="+harness.PythonPackages(t))
	if out, err := command.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("the order of what is read again: %.2000s (%v)", out, err)
	}
}

// trickle emits events, each in a transaction of its own, for seconds, and says when it is through.
func (f *brokerFlow) trickle(t *testing.T, n int) <-chan error {
	t.Helper()
	text := fmt.Sprintf(`DO $$ BEGIN
		FOR i IN %d..%d LOOP `+insertEvents+`; COMMIT; PERFORM pg_sleep(0.002); END LOOP; END $$`,
		f.sent+1, f.sent+n, keys, "i", "i")
	f.never += (f.sent+n)/97 - f.sent/97
	f.sent += n
	conn, over := f.outbox.Connect(t), make(chan error, 1)
	go func() {
		_, err := conn.PgConn().Exec(t.Context(), text).ReadAll()
		over <- err
	}()
	return over
}

func (d *driver) signal(s syscall.Signal) {
	d.t.Helper()
	if err := d.command.Process.Signal(s); err != nil {
		d.t.Errorf("signal %v: %v", s, err)
	}
}

const (
	holder       = "SELECT coalesce(max(holder), '') FROM inbox_offset"
	countDecided = "SELECT count(*) FROM inbox_event WHERE state IN (0, 2)"
	sessions     = "pg_stat_activity WHERE datname = current_database()"
)

// slow makes each effect take some time, between the claim and the commit.
const slow = `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
	$$ BEGIN PERFORM pg_sleep(0.005); RETURN NEW; END $$;
	CREATE TRIGGER slow BEFORE INSERT ON effect FOR EACH ROW EXECUTE FUNCTION slow()`
