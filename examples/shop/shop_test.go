package shop

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/emit"
	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

func pool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	p, err := pgxpool.New(context.WithoutCancel(t.Context()), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// relayed starts a relay that is ready, from the order service's outbox to a broker of its own.
func relayed(t *testing.T, orders *harness.PG) (relay *harness.Relay, brokers []string) {
	t.Helper()
	broker, err := embedded.StartFakeKafka(embedded.FakeKafkaConfig{Topics: map[string]int32{"shop.order": 3}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { broker.Close() })
	settings := harness.NewSettings(t, orders, broker.Addresses()).With("message.topic", "shop.{aggregate_type}")
	relay = harness.NewRelay(t, settings)
	relay.Init(t)
	relay.Start(t)
	relay.WaitReady(t, time.Minute)
	return relay, broker.Addresses()
}

// From the order service's COMMIT to the billing service's, through outbox, relay, broker and inbox; the application
// has no right on the outbox but to call emit. Seen to fail with a function emit that writes nothing.
func TestFromCommitToCommit(t *testing.T) {
	orders, billing := harness.Postgres(t), harness.Postgres(t)
	orders.Exec(t, OrderTables)
	billing.Exec(t, BillingTables)
	_, brokers := relayed(t, orders)

	shop := pool(t, asApplication(t, orders))
	bills := pool(t, billing.URL)
	c, err := inbox.New(bills, inbox.Config{Name: "billing", Brokers: brokers, Topics: []string{"shop.order"}})
	if err != nil {
		t.Fatal(err)
	}
	Bill(c)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()

	patience, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()
	if err := inbox.Migrate(patience, bills, "public"); err != nil { // before the first look into its tables
		t.Fatal(err)
	}
	var took []time.Duration
	const events = 300
	for n := range events {
		customer := fmt.Sprintf("customer-%d", n%7)
		id, err := PlaceOrder(patience, shop, fmt.Sprintf("order-%d", n), customer, int64(n+1))
		if err != nil {
			t.Fatal(err)
		}
		committed := time.Now()
		state, err := inbox.WaitHandled(patience, bills, "public", "billing", id)
		if err != nil && n == 0 {
			t.Fatalf("%v; status: %+v", err, c.Status())
		}
		if err != nil || state != "done" {
			t.Fatalf("order %d: got %s, %v, want done", n, state, err)
		}
		took = append(took, time.Since(committed))
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	slices.Sort(took)
	t.Logf("from COMMIT to COMMIT, one at a time: p50 %v, p99 %v", took[events/2], took[events*99/100])
	if got := billing.Query(t, "SELECT count(DISTINCT order_id) || '/' || count(*) FROM invoice"); got != "300/300" {
		t.Errorf("invoices: got %s, want 300/300", got)
	}
	const disorder = `SELECT count(*) FROM (SELECT cents, lag(cents) OVER (PARTITION BY customer ORDER BY number) AS before
		FROM invoice) i WHERE cents <= before`
	if got := billing.Query(t, disorder); got != "0" {
		t.Errorf("invoices out of order: got %s, want 0", got)
	}
}

// asApplication makes the function emit, and a role that may call it and write its own table only.
func asApplication(t *testing.T, pg *harness.PG) (url string) {
	t.Helper()
	pg.Exec(t, emit.SQL("public", "public.outbox_events"))
	pg.Exec(t, "DO $$ BEGIN CREATE ROLE shop LOGIN; EXCEPTION WHEN duplicate_object THEN END $$")
	pg.Exec(t, "GRANT EXECUTE ON FUNCTION emit TO shop; GRANT SELECT, INSERT ON orders TO shop")
	config, err := pgxpool.ParseConfig(pg.URL)
	if err != nil {
		t.Fatal(err)
	}
	at := config.ConnConfig
	return fmt.Sprintf("postgres://shop@%s:%d/%s", at.Host, at.Port, at.Database)
}
