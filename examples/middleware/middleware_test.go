package middleware

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/sony/gobreaker/v2"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

const schema = `{"type": "object", "required": ["cents"], "properties": {"cents": {"type": "integer", "minimum": 1}}}`

type order struct {
	Cents int `json:"cents"`
}

// Every third order has no price that the schema allows, and the service that says the tax is away for a while. Breaks
// it catches: a payload that a handler gets though it does not fit; an outage that costs an event its attempts. Seen to
// fail with the schema not asked.
func TestPayloadsFitAndAServiceThatIsAwayCostsNoAttempt(t *testing.T) {
	pg := harness.Postgres(t)
	pg.Exec(t, "CREATE TABLE bill (cents bigint, attempt integer)")
	broker, err := embedded.StartFakeKafka(embedded.FakeKafkaConfig{Topics: map[string]int32{"shop.order": 3}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { broker.Close() })
	pool, err := pgxpool.New(context.WithoutCancel(t.Context()), pg.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	c, err := inbox.New(pool, inbox.Config{Name: "billing", Brokers: broker.Addresses(), Topics: []string{"shop.order"},
		Retry: inbox.Retry{MaxAttempts: 3, InitialBackoff: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	c.Use(Schemas(map[string]*jsonschema.Schema{"OrderPlaced": compile(t)}))
	var away atomic.Bool
	var calls atomic.Int64
	away.Store(true)
	tax := gobreaker.NewCircuitBreaker[int](gobreaker.Settings{Name: "tax", Timeout: 2 * time.Second,
		ReadyToTrip: func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= 1 }})
	inbox.On(c, "OrderPlaced", func(ctx context.Context, tx pgx.Tx, e inbox.Event[order]) error {
		percent, err := Through(tax, func() (int, error) {
			calls.Add(1)
			if away.Load() {
				return 0, inbox.Outage(errors.New("the tax service does not answer"))
			}
			return 19, nil
		})
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "INSERT INTO bill VALUES ($1, $2)", e.Payload.Cents*(100+percent)/100, e.Attempt)
		return err
	})
	send(t, broker.Addresses(), 30)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	harness.Eventually(t, 30*time.Second, "the inbox's own breaker sees the outage", func(context.Context) string {
		return map[bool]string{false: "it is closed"}[c.Status().BreakerOpen && calls.Load() > 0]
	})
	away.Store(false)
	until(t, pg, "SELECT count(*) FROM inbox_dead WHERE class = 'permanent' AND error LIKE '%does not fit the schema%'",
		"10")
	until(t, pg, "SELECT count(*) || ' ' || sum(cents) || ' ' || max(attempt) FROM bill", "20 2380 1")
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	if got := pg.Query(t, "SELECT count(*) FROM inbox_dead"); got != "10" {
		t.Errorf("dead letters: got %s, want the 10 that do not fit", got)
	}
}

func compile(t *testing.T) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("order.json", document); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile("order.json")
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// send sends orders of a key each; the price of every third is 0.
func send(t *testing.T, addrs []string, n int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for i := range n {
		cents := 100
		if i%3 == 0 {
			cents = 0
		}
		record := &kgo.Record{Topic: "shop.order", Key: fmt.Append(nil, i), Value: fmt.Appendf(nil, `{"cents": %d}`, cents),
			Headers: []kgo.RecordHeader{
				{Key: "id", Value: fmt.Appendf(nil, "019aa7e4-0000-7000-8000-%012x", i)},
				{Key: "event_type", Value: []byte("OrderPlaced")},
			}}
		if err := client.ProduceSync(t.Context(), record).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func until(t *testing.T, pg *harness.PG, sql, want string) {
	t.Helper()
	harness.Eventually(t, time.Minute, sql, func(ctx context.Context) string {
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
