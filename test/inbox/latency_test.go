package inbox

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/emit"
	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/embedded/child"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

var paced = flag.Duration("paced", 0, "measure COMMIT to COMMIT for so long, at 1,000 a second: make bench-commit")

// From the COMMIT of the order service, which emits 1,000 times a second, through outbox, relay and a real Kafka, to
// the COMMIT of the example's consumer, built as a user would, whose handler is one statement. Both times are
// Postgres's own, of the transactions (track_commit_timestamp). It measures for as long as it is told, and in a usual
// run sees that every event has both. Seen to fail with a consumer that ends behind the warm-up.
func TestCommitToCommit(t *testing.T) {
	rate, d := 1_000, *paced
	if d == 0 {
		rate, d = 200, 2*time.Second
	}
	pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{Settings: map[string]string{"track_commit_timestamp": "on"}})
	kafka := harness.Kafka(t)
	settings := harness.NewSettings(t, pg, kafka.Addrs)
	topic := settings.Topic("order")
	kafka.CreateTopic(t, topic, 6, nil)
	relay := harness.NewRelay(t, settings)
	relay.Init(t)
	pg.Exec(t, emit.SQL("public", "public.outbox_events"))
	pg.Exec(t, "CREATE TABLE placed (event uuid)")
	pg.Exec(t, "CREATE DATABASE billing")
	relay.Start(t)
	relay.WaitReady(t, time.Minute)
	billing := newPool(t, pg.Server.URL("billing"), 2)
	listen, err := embedded.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	p, err := child.Start(child.Config{
		Path: harness.Build(t, "examples", "./consumer"), DeathSignal: syscall.SIGKILL,
		Env: append(os.Environ(), "DATABASE_URL="+pg.Server.URL("billing"), "BROKERS="+strings.Join(kafka.Addrs, ","),
			"TOPICS="+topic, fmt.Sprintf("HTTP_LISTEN=127.0.0.1:%d", listen)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	shop := newPool(t, pg.URL, 8)
	place(t, shop, 50, 2*time.Second) // so that all are in the group, and warm
	before := events(t, shop, "placed")
	load, began := harness.LoadAverage(), time.Now()
	place(t, shop, rate, d)
	placing := time.Since(began)
	sent := events(t, shop, "placed")
	var done map[string]time.Time
	harness.Eventually(t, time.Minute, "every event has had its effect", func(context.Context) string {
		if done = events(t, billing, "inbox_event"); len(done) < len(sent) {
			return fmt.Sprintf("%d of %d", len(done), len(sent))
		}
		return ""
	})
	rss := float64(harness.PeakRSS(t, p.PID())) / (1 << 20)
	p.Signal(syscall.SIGTERM)
	if <-p.Done(); p.ExitCode() != 0 {
		t.Errorf("the consumer ended with code %d: %s", p.ExitCode(), p.LastWords())
	}
	var took []time.Duration
	for id, committed := range sent {
		if effect, there := done[id]; !there {
			t.Errorf("event %s has had no effect", id)
		} else if _, warm := before[id]; !warm {
			took = append(took, effect.Sub(committed))
		}
	}
	slices.Sort(took)
	t.Logf("%d events at %.0f/s, COMMIT to COMMIT: p50 %v, p99 %v, most %v; the consumer's peak RSS %.1f MiB; load %s",
		len(took), float64(len(took))/placing.Seconds(), took[len(took)/2], took[len(took)*99/100], took[len(took)-1],
		rss, load)
	if took[0] < 0 {
		t.Errorf("an effect came %v before its event", -took[0])
	}
}

// place emits at a rate, from eight sessions, each event with a row that has its transaction's time.
func place(t *testing.T, shop *pgxpool.Pool, rate int, d time.Duration) {
	t.Helper()
	const sessions = 8
	var all sync.WaitGroup
	for s := range sessions {
		all.Go(func() {
			tick := time.NewTicker(time.Second * sessions / time.Duration(rate))
			defer tick.Stop()
			for n := range int(float64(rate) * d.Seconds() / sessions) {
				<-tick.C
				_, err := shop.Exec(t.Context(), `INSERT INTO placed
					SELECT emit('order', $1::text, 'OrderPlaced', jsonb_build_object('customer', $1::text))`,
					fmt.Sprintf("k%d", (n*sessions+s)%figureKeys))
				if err != nil {
					t.Errorf("place an order: %v", err)
					return
				}
			}
		})
	}
	all.Wait()
}

// events are those of a table, by id, with when they were committed.
func events(t *testing.T, pool *pgxpool.Pool, table string) map[string]time.Time {
	t.Helper()
	column := map[string]string{"placed": "event", "inbox_event": "event_id"}[table]
	rows, err := pool.Query(t.Context(), "SELECT "+column+"::text, pg_xact_commit_timestamp(xmin) FROM "+table)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	found := map[string]time.Time{}
	for rows.Next() {
		var id string
		var at time.Time
		if err := rows.Scan(&id, &at); err != nil {
			t.Fatal(err)
		}
		found[id] = at
	}
	return found
}
