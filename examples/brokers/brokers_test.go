package brokers

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

const (
	events    = 600
	customers = 7
)

// scenario is a relay to a broker, and a consumer behind it.
type scenario struct {
	sink    []any // settings of the relay
	begin   func(relay *harness.Relay, topic string)
	end     func(topic string, own *harness.PG) // waits for more than the effects, and looks at it
	program string
	ids     string // the table of ids that it handled; empty: processed_event_ids
	environ func(topic string) []string
}

// inboxIDs are those of programs on the inbox; none is parked for long.
const inboxIDs = "inbox_event"

// program is a consumer, a process of its own.
type program struct {
	path    string
	environ []string
	log     bytes.Buffer
	running *exec.Cmd
}

func (p *program) start(t *testing.T) {
	t.Helper()
	p.running = exec.CommandContext(context.WithoutCancel(t.Context()), p.path)
	p.running.Env, p.running.Stdout, p.running.Stderr = append(os.Environ(), p.environ...), &p.log, &p.log
	if err := p.running.Start(); err != nil {
		t.Fatal(err)
	}
}

func (p *program) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.running.Process.Signal(s); err != nil {
		t.Errorf("signal %v: %v; the consumer said:\n%s", s, err, &p.log)
	}
}

// stop ends it, if it runs, and waits for that.
func (p *program) stop(s syscall.Signal) {
	if p.running != nil {
		_ = p.running.Process.Signal(s)
		_ = p.running.Wait()
		p.running = nil
	}
}

// freeze stops it between two transactions: for one that is open the other consumer would wait. Nor does it while an
// inbox tries an event alone that the process before may have died of: that one would be set aside, as it should be.
func (p *program) freeze(t *testing.T, own *harness.PG, ids string) {
	t.Helper()
	alone := ""
	if ids == inboxIDs {
		alone = " + (SELECT count(*) FROM inbox_suspect WHERE alone > 0)"
	}
	harness.Eventually(t, time.Minute, "the consumer is frozen without locks", func(ctx context.Context) string {
		p.signal(t, syscall.SIGSTOP)
		open, err := own.TryQuery(ctx, `SELECT (SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL)`+alone)
		if err == nil && open == "0" {
			return ""
		}
		p.signal(t, syscall.SIGCONT)
		return fmt.Sprint(open, err)
	})
}

// judge has a consumer killed twice while events come, and frozen until another has taken over what it held, and counts
// the effects. It returns the topic.
func judge(t *testing.T, s scenario) string {
	t.Helper()
	pg, own := harness.Postgres(t), harness.Postgres(t)
	settings := harness.NewSettings(t, pg, nil).With(s.sink...)
	delete(settings, "kafka.brokers")
	delete(settings, "outbox.columns.headers")
	relay := harness.NewRelay(t, settings)
	relay.Init(t)
	topic := settings.Topic("order")
	if s.begin != nil {
		s.begin(relay, topic)
	}
	relay.Start(t)
	relay.WaitReady(t, time.Minute)
	pg.Exec(t, insert(1, 1)) // a stream exists from now on
	published(t, pg, 1)

	path := filepath.Join(t.TempDir(), "consumer")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./"+s.program)
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v: %s", s.program, err, said)
	}
	environ := append(s.environ(topic), "DATABASE_URL="+own.URL)
	one, other := &program{path: path, environ: environ}, &program{path: path, environ: environ}
	t.Cleanup(func() {
		one.stop(syscall.SIGKILL)
		other.stop(syscall.SIGKILL)
		if t.Failed() {
			t.Logf("the consumers said:\n%s\n%s", &one.log, &other.log)
		}
	})
	one.start(t)
	ids := cmp.Or(s.ids, "processed_event_ids")
	handled(t, own, ids, 1)
	own.Exec(t, slow) // what comes next finds the consumer at work, with messages that it was handed
	pg.Exec(t, insert(2, events))
	for _, n := range []int{events / 6, events / 3} {
		handled(t, own, ids, n)
		one.stop(syscall.SIGKILL)
		one.start(t)
	}
	handled(t, own, ids, events/2)
	one.freeze(t, own, ids)
	other.start(t)
	handled(t, own, ids, events) // what the frozen one was handed among them
	one.signal(t, syscall.SIGCONT)
	published(t, pg, events)
	if s.end != nil {
		s.end(topic, own)
	}
	relay.Stop(t)
	other.stop(syscall.SIGTERM)
	one.stop(syscall.SIGTERM)
	counted := own.Query(t, "SELECT sum(orders) || ' of ' || count(*) FROM orders_of_customer")
	if want := fmt.Sprintf("%d of %d", events, customers); counted != want {
		t.Errorf("orders: got %s customers, want %s: an effect is lost, or there twice", counted, want)
	}
	return topic
}

// slow makes each effect take some time, between the claim and the commit.
const slow = `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
	$$ BEGIN PERFORM pg_sleep(0.005); RETURN NEW; END $$;
	CREATE TRIGGER slow BEFORE INSERT ON orders_of_customer FOR EACH ROW EXECUTE FUNCTION slow()`

// insert writes events that are orders of some customers.
func insert(from, to int) string {
	return fmt.Sprintf(`INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'order', i::text, 'OrderPlaced', jsonb_build_object('customer', 'c' || i %% %d)
		FROM generate_series(%d, %d) i`,
		customers, from, to)
}

func published(t *testing.T, pg *harness.PG, n int) {
	t.Helper()
	harness.Eventually(t, time.Minute, "events are published", func(ctx context.Context) string {
		got, err := pg.TryQuery(ctx, "SELECT count(*) FROM cdc_relay_journal")
		if err != nil || got != fmt.Sprint(n) {
			return fmt.Sprint(got, err)
		}
		return ""
	})
}

// count is how many events the consumer has handled.
func count(ctx context.Context, own *harness.PG, ids string) string {
	got, err := own.TryQuery(ctx, "SELECT count(*) FROM "+ids)
	if err != nil {
		return err.Error() // there is no such table yet
	}
	return got
}

func handled(t *testing.T, own *harness.PG, ids string, n int) {
	t.Helper()
	harness.Eventually(t, time.Minute, fmt.Sprintf("%d events are handled", n), func(ctx context.Context) string {
		var got int
		if text := count(ctx, own, ids); func() bool { _, err := fmt.Sscan(text, &got); return err != nil }() || got < n {
			return text
		}
		return ""
	})
}

// Breaks it catches: an example that loses or repeats an effect when it dies, or when it wakes behind another.
func TestConsumerOfNATSHandlesEachEventOnce(t *testing.T) {
	server := harness.NATS(t)
	judge(t, scenario{
		sink:    []any{"sink", "nats", "nats.url", server.URL, "nats.create_streams.enabled", true},
		program: "nats",
		ids:     inboxIDs,
		environ: func(topic string) []string {
			return []string{"NATS_URL=" + server.URL, "SUBJECT=" + topic}
		},
	})
}

// Breaks it catches: as above.
func TestConsumerOfRedisHandlesEachEventOnce(t *testing.T) {
	server := harness.Redis(t)
	judge(t, scenario{
		sink:    []any{"sink", "redis-stream", "redis.url", "redis://" + server.Addr},
		program: "redis",
		ids:     inboxIDs,
		environ: func(topic string) []string {
			return []string{"REDIS_URL=redis://" + server.Addr, "STREAM=" + topic}
		},
	})
}

// Breaks it catches: as above, with messages that were acknowledged before the commit.
func TestConsumerOfAQueueHandlesEachEventOnce(t *testing.T) {
	server := harness.RabbitMQ(t)
	url := "amqp://guest:guest@" + server.Addr + "/"
	judge(t, scenario{
		sink: []any{"sink", "rabbitmq", "rabbitmq.url", url},
		begin: func(relay *harness.Relay, topic string) {
			if code, _, said := relay.Run(t, "init", "--rabbitmq-topology", "--message-topic", topic); code != 0 {
				t.Fatalf("init --rabbitmq-topology: exit code %d: %s", code, said)
			}
		},
		program: "rabbitmqqueue",
		ids:     inboxIDs,
		environ: func(topic string) []string {
			return []string{"RABBITMQ_URL=" + url + "?heartbeat=2", "QUEUE=" + topic + ".work"}
		},
	})
}

// Besides: one message fails each time. Breaks it catches: as above; a message that fails and gets lost, or stays in
// the work queue forever. Seen to fail with the claim's answer not looked at, and with the count of retries not kept.
func TestConsumerOfRabbitMQHandlesEachEventOnce(t *testing.T) {
	harness.Full(t)
	server := harness.RabbitMQ(t)
	url := "amqp://guest:guest@" + server.Addr + "/"
	topic := judge(t, scenario{
		sink: []any{"sink", "rabbitmq", "rabbitmq.url", url},
		begin: func(relay *harness.Relay, topic string) {
			code, _, said := relay.Run(t, "init", "--rabbitmq-topology", "--message-topic", topic)
			if code != 0 {
				t.Fatalf("init --rabbitmq-topology: exit code %d: %s", code, said)
			}
			conn, channel := dial(t, url)
			defer conn.Close()
			if err := channel.PublishWithContext(t.Context(), topic, "order.OrderPlaced", true, false,
				amqp.Publishing{MessageId: "bad", Body: []byte("no JSON")}); err != nil {
				t.Fatal(err)
			}
		},
		end: func(topic string, _ *harness.PG) {
			conn, channel := dial(t, url)
			defer conn.Close()
			harness.Eventually(t, 20*time.Second, "there is a dead letter", func(context.Context) string {
				q, err := channel.QueueDeclarePassive(topic+".dead", true, false, false, false, nil)
				if err != nil || q.Messages == 0 {
					return fmt.Sprint(q, err)
				}
				return ""
			})
		},
		program: "rabbitmq",
		environ: func(topic string) []string {
			return []string{"RABBITMQ_URL=" + url + "?heartbeat=2", "EXCHANGE=" + topic, "RETRY_PAUSE=100ms"}
		},
	})
	conn, channel := dial(t, url)
	defer conn.Close()
	d, found, err := channel.Get(topic+".dead", true)
	if err != nil || !found || d.MessageId != "bad" || d.Headers["x-retries"] != int32(4) ||
		!strings.Contains(fmt.Sprint(d.Headers["x-last-error"]), "invalid character") || string(d.Body) != "no JSON" {
		t.Errorf("dead letter: got %t, %v, %q with %v", found, err, d.Body, d.Headers)
	}
}

// Breaks it catches: as with NATS; a position that is not that behind what is handled.
func TestConsumerOfRabbitMQStreamHandlesEachEventOnce(t *testing.T) {
	server := harness.RabbitMQ(t)
	judge(t, scenario{
		sink: []any{"sink", "rabbitmq-stream", "rabbitmq.stream_url", "rabbitmq-stream://guest:guest@" + server.StreamAddr,
			"rabbitmq_stream.create_streams.enabled", true},
		program: "rabbitmqstream",
		ids:     inboxIDs,
		environ: func(topic string) []string { // the connection outlives the freeze
			return []string{"RABBITMQ_URL=amqp://guest:guest@" + server.Addr + "/?heartbeat=60", "STREAM=" + topic}
		},
		end: func(_ string, own *harness.PG) {
			harness.Eventually(t, time.Minute, "the position is behind the last event", func(ctx context.Context) string {
				next, err := own.TryQuery(ctx, "SELECT string_agg(next_offset::text, ' ') FROM inbox_offset")
				if err != nil || next != fmt.Sprint(events) {
					return fmt.Sprint(next, err)
				}
				return ""
			})
		},
	})
}

func dial(t *testing.T, url string) (*amqp.Connection, *amqp.Channel) {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	channel, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return conn, channel
}
