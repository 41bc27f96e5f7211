package test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// The README's five steps, in their order, on a Postgres as it comes (wal_level is replica) and a Kafka with the
// README's topic. Breaks it catches: a statement, key or command of the README that does not work, or that is not run
// here. Seen to fail with `\c shop` taken out (permission denied for schema public), and with wal_level left as it was.
func TestTheFiveStepsOfTheReadmeWork(t *testing.T) {
	t.Parallel()
	const page, topic = "../README.md", "outbox.event.order"
	sql, names := statements(t, page)
	if want := []string{"postgres", "event"}; !slices.Equal(names, want) {
		t.Fatalf("statements of the README: got %q, want %q", names, want)
	}
	settings := pageSettings(t, page, "relay.yaml")
	pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{Settings: map[string]string{"wal_level": "replica"}})
	kafka := harness.NewOwnKafka(t, harness.KafkaConfig{})
	kafka.CreateTopic(t, topic, 12, nil)

	shop := &harness.PG{Server: pg.Server, Database: "shop", URL: pg.Server.URL("shop")}
	before, after, found := strings.Cut(sql["postgres"], "\\c shop\n")
	if !found {
		t.Fatal("the README does not connect to shop before it grants")
	}
	// ALTER SYSTEM is refused where several statements are one transaction
	each := func(pg *harness.PG, statements string) {
		t.Helper()
		for statement := range strings.SplitSeq(strings.TrimSpace(statements), ";") {
			pg.Exec(t, statement)
		}
	}
	each(pg, before)
	each(shop, after)
	if err := pg.Server.Fast(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := pg.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	asRelay := strings.Replace(shop.URL, "postgres@", "relay@", 1)
	if url, _ := settings["postgres.url"].(string); !strings.HasPrefix(url,
		"postgres://relay:change%20me@localhost:5432/shop") {
		t.Errorf("postgres.url of the README: got %q, want the role, password and database of its SQL", url)
	}
	address := harness.NewSettings(t, shop, kafka.Addrs)["http.listen"] // a port that no other test uses
	r := harness.NewRelay(t, settings.With("postgres.url", asRelay, "kafka.brokers", kafka.Addrs, "http.listen", address))
	runCommands(t, r, page, "init")
	r.Start(t)
	r.WaitReady(t, time.Minute)
	shop.Exec(t, sql["event"])
	arrived := make(chan *kgo.Record, 1)
	follower := harness.Follow(t, kafka.Addrs, []string{topic}, func(record *kgo.Record) { arrived <- record })
	t.Cleanup(func() { _ = follower.Close() })
	select {
	case record := <-arrived:
		if got, want := string(record.Key), "42"; got != want {
			t.Errorf("key: got %q, want %q", got, want)
		}
		if got, want := string(record.Value), `{"total": 99, "customer": "ada"}`; got != want {
			t.Errorf("value: got %q, want %q", got, want)
		}
		for _, header := range []string{
			"id", "event_type", "aggregate_type", "created_at", "traceparent", "x-outbox-position", "x-outbox-source",
			"x-outbox-epoch",
		} {
			if len(harness.Header(record, header)) == 0 {
				t.Errorf("the record has no header %s", header)
			}
		}
	case <-time.After(time.Minute):
		t.Fatal("the event of the README did not arrive within a minute")
	}
	runCommands(t, r, page, "look")
}
