package inbox

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		playChild()
		return
	}
	harness.Main(m)
}

// effects is the table of a consumer under test: one row per event, numbered in the order of the statements. Within a
// key that is the order of the commits, if the inbox keeps its promise.
const effects = `CREATE TABLE effect (n bigint GENERATED ALWAYS AS IDENTITY, key text, event text, seq integer,
	partition integer, process integer, at timestamptz DEFAULT clock_timestamp())`

type payload struct {
	Seq   int    `json:"seq"`
	Fails string `json:"fails,omitempty"`
}

func apply(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
	_, err := tx.Exec(ctx, "INSERT INTO effect (key, event, seq, partition, process) VALUES ($1, $2, $3, $4, $5)",
		string(e.Key), e.ID, e.Payload.Seq, e.Partition, os.Getpid())
	return err
}

// topicOf starts a stand-in for Kafka that has a topic.
func topicOf(t *testing.T, partitions int32) (addrs []string, topic string) {
	t.Helper()
	config := embedded.FakeKafkaConfig{Topics: map[string]int32{"outbox.event.order": partitions}}
	broker, err := embedded.StartFakeKafka(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { broker.Close() })
	return broker.Addresses(), "outbox.event.order"
}

// event is one of the relay's messages.
func event(topic string, n, keys int) *kgo.Record {
	return eventOf(topic, fmt.Sprintf("k%d", n%keys), fmt.Sprintf("019aa7e4-0000-7000-8000-%012x", n), payload{Seq: n})
}

func eventOf(topic, key, id string, p payload) *kgo.Record {
	value := fmt.Sprintf(`{"seq": %d, "fails": %q}`, p.Seq, p.Fails)
	return &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(value), Headers: []kgo.RecordHeader{
		{Key: "id", Value: []byte(id)}, {Key: "event_type", Value: []byte("OrderPlaced")},
		{Key: "created_at", Value: []byte(time.Now().UTC().Format(time.RFC3339Nano))},
	}}
}

func produce(t *testing.T, addrs []string, records ...*kgo.Record) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func newPool(t *testing.T, url string, connections int32) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// start runs a consumer until the returned function is called, or the test ends.
func start(
	t *testing.T, pool *pgxpool.Pool, config inbox.Config, register func(*inbox.Consumer),
) (*inbox.Consumer, func()) {
	t.Helper()
	def(&config.Name, "billing")
	def(&config.Log, slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})))
	c, err := inbox.New(pool, config)
	if err != nil {
		t.Fatal(err)
	}
	register(c)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Run(ctx); err != nil {
			t.Errorf("Run: %v", err) // at once: what waits for the consumer's work ends then
		}
	}()
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return c, stop
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// newLog writes what is a warning or worse.
func newLog(to io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func until(t *testing.T, pg *harness.PG, sql, want string) {
	t.Helper()
	harness.Eventually(t, 60*time.Second, sql, func(ctx context.Context) string {
		got, err := pg.TryQuery(ctx, sql)
		if err != nil {
			return err.Error()
		}
		if got != want {
			return fmt.Sprintf("got %s, want %s", got, want)
		}
		return ""
	})
}

// disorder counts effects of a key that came behind later ones of it.
const disorder = `SELECT count(*) FROM (SELECT seq, max(seq) OVER (PARTITION BY key ORDER BY n
	ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM effect) e WHERE seq <= before`

func judge(t *testing.T, pg *harness.PG, events int) {
	t.Helper()
	for what, sql := range map[string]string{
		"effects":            "SELECT count(*) FROM effect",
		"events with effect": "SELECT count(DISTINCT event) FROM effect",
	} {
		if got := pg.Query(t, sql); got != fmt.Sprint(events) {
			t.Errorf("%s: got %s, want %d", what, got, events)
		}
	}
	if got := pg.Query(t, disorder); got != "0" {
		t.Errorf("effects out of order: got %s, want 0", got)
	}
}
