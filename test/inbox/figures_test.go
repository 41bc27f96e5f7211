package inbox

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

var figures = flag.Int("figures", 0, "measure with so many events: make bench-inbox")

const figureKeys = 1_000

// consumed is how fast, and for how much CPU, a topic was consumed.
type consumed struct {
	events           int
	took             time.Duration
	client, postgres time.Duration // of CPU
}

func (c consumed) String() string {
	each := func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Microseconds())/float64(c.events)) }
	return fmt.Sprintf("%.0f events/s; CPU per event: %s µs of the consumer, %s µs of Postgres",
		float64(c.events)/c.took.Seconds(), each(c.client), each(c.postgres))
}

// It measures, and does nothing in a usual run: how many events a second one process handles with a Postgres beside it,
// each event one UPDATE, and what that costs. All effects are there afterwards. Seen to fail with a handler that leaves
// one event out.
func TestFigures(t *testing.T) {
	events := *figures
	if events == 0 {
		events = 2_000 // so that what measures is right
	}
	kafka := harness.Kafka(t)
	topic := kafka.Topic(t, "order", 6, nil)
	preload(t, kafka.Addrs, topic, events)
	pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{})
	for _, c := range []struct {
		name     string
		register func(*inbox.Consumer)
	}{
		{"no database but the inbox", onNothing},
		{"On, one UPDATE an event", onUpdate},
		{"OnBatch, one UPDATE a batch", onBatchUpdate},
	} {
		t.Run(c.name, func(t *testing.T) {
			newAccounts(t, pg)
			before, beforePostgres, began := ownCPU(t), postgresCPU(t, pg), time.Now()
			_, stop := start(t, newPool(t, pg.URL, 10), inbox.Config{Name: harness.Unique(t, "billing"), Brokers: kafka.Addrs,
				Topics: []string{topic}}, c.register)
			quicklyUntil(t, pg, "SELECT sum(next_offset) FROM inbox_offset", strconv.Itoa(events))
			got := consumed{events, time.Since(began), ownCPU(t) - before, postgresCPU(t, pg) - beforePostgres}
			stop()
			t.Logf("%s: %v", c.name, got)
			if n := pg.Query(t, "SELECT sum(n) FROM account"); !strings.HasPrefix(c.name, "no ") && n != strconv.Itoa(events) {
				t.Errorf("effects: got %s, want %d", n, events)
			}
		})
	}
	t.Run("the statements of OnBatch alone", func(t *testing.T) {
		newAccounts(t, pg)
		pool := newPool(t, pg.URL, 10)
		if err := inbox.Migrate(t.Context(), pool, "public"); err != nil {
			t.Fatal(err)
		}
		before, beforePostgres, began := ownCPU(t), postgresCPU(t, pg), time.Now()
		statementsAlone(t, pool, events)
		got := consumed{events, time.Since(began), ownCPU(t) - before, postgresCPU(t, pg) - beforePostgres}
		t.Logf("the statements of OnBatch alone, in transactions of 100: %v", got)
		if n := pg.Query(t, "SELECT sum(n) FROM account"); n != strconv.Itoa(events) {
			t.Errorf("effects: got %s, want %d", n, events)
		}
	})
	t.Run("bare franz-go loop", func(t *testing.T) {
		before, began := ownCPU(t), time.Now()
		bareLoop(t, kafka.Addrs, topic, events)
		t.Logf("a bare franz-go loop: %v", consumed{events, time.Since(began), ownCPU(t) - before, 0})
	})
}

func newAccounts(t *testing.T, pg *harness.PG) {
	t.Helper()
	pg.Exec(t, fmt.Sprintf(`DROP SCHEMA public CASCADE; CREATE SCHEMA public;
		CREATE TABLE account (key text PRIMARY KEY, n bigint NOT NULL);
		INSERT INTO account SELECT 'k' || i, 0 FROM generate_series(0, %d) i`, figureKeys-1))
}

// statementsAlone is the floor: what an inbox with OnBatch has Postgres do, by eight workers that do nothing else, and
// know all the events from the start. As in the inbox, a key is one worker's.
func statementsAlone(t *testing.T, pool *pgxpool.Pool, events int) {
	t.Helper()
	const batch, many = 100, 8
	var taken atomic.Int64
	var workers sync.WaitGroup
	for worker := range many {
		workers.Go(func() {
			for {
				first := int(taken.Add(batch)) - batch
				if first >= events {
					return
				}
				n := min(batch, events-first)
				ids, keys, sources := make([]string, n), make([]string, n), make([]int16, n)
				for i := range n {
					ids[i] = fmt.Sprintf("019aa7e4-0000-7000-8000-%012x", first+i)
					keys[i] = fmt.Sprintf("k%d", i%(figureKeys/many)*many+worker)
				}
				err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
					if _, err := tx.Exec(t.Context(), "SELECT inbox_claim_all(1::smallint, pg_postmaster_start_time(), $1, $2)",
						sources, ids); err != nil {
						return err
					}
					_, err := tx.Exec(t.Context(), batchUpdate, keys)
					return err
				})
				if err != nil {
					t.Errorf("the statements alone: %v", err)
					return
				}
			}
		})
	}
	workers.Wait()
}

// accounts is the table that the handler of one UPDATE changes.
var accounts = fmt.Sprintf(`CREATE TABLE account (key text PRIMARY KEY, n bigint NOT NULL);
	INSERT INTO account SELECT 'k' || i, 0 FROM generate_series(0, %d) i`, figureKeys-1)

const batchUpdate = `UPDATE account a SET n = a.n + u.n FROM (
	SELECT key, count(*) AS n FROM unnest($1::text[]) AS key GROUP BY key) u WHERE a.key = u.key`

func onNothing(c *inbox.Consumer) {
	inbox.On(c, "OrderPlaced", func(context.Context, pgx.Tx, inbox.Event[payload]) error { return nil })
}

func onUpdate(c *inbox.Consumer) {
	inbox.On(c, "OrderPlaced", func(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
		_, err := tx.Exec(ctx, "UPDATE account SET n = n + 1 WHERE key = $1", string(e.Key))
		return err
	})
}

func onBatchUpdate(c *inbox.Consumer) {
	inbox.OnBatch(c, "OrderPlaced", func(ctx context.Context, tx pgx.Tx, es []inbox.Event[payload]) error {
		keys := make([]string, len(es))
		for i, e := range es {
			keys[i] = string(e.Key)
		}
		slices.Sort(keys) // so that two batches lock rows in one order
		_, err := tx.Exec(ctx, batchUpdate, keys)
		return err
	})
}

func preload(t *testing.T, addrs []string, topic string, events int) {
	t.Helper()
	preloadFrom(t, addrs, topic, 0, events)
}

// preloadFrom puts so many events into a topic, the first with that number.
func preloadFrom(t *testing.T, addrs []string, topic string, from, events int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.ProducerBatchCompression(kgo.Lz4Compression()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for n := range events {
		client.Produce(t.Context(), event(topic, from+n, figureKeys), func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("produce: %v", err)
			}
		})
	}
	if err := client.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func bareLoop(t *testing.T, addrs []string, topic string, events int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.ConsumerGroup(harness.Unique(t, "bare")),
		kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for n := 0; n < events; {
		fetches := client.PollRecords(t.Context(), 2_000)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		n += fetches.NumRecords()
	}
}

// quicklyUntil looks often: what it waits for is timed.
func quicklyUntil(t *testing.T, pg *harness.PG, sql, want string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	pool := newPool(t, pg.URL, 1)
	for {
		var got string
		if err := pool.QueryRow(t.Context(), "SELECT ("+sql+")::text").Scan(&got); err == nil && got == want {
			return
		}
		if t.Failed() { // the consumer has ended
			t.FailNow()
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-tick.C:
		}
	}
}

func ownCPU(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// postgresCPU is that of the server's process and of all that it has started, those that have ended included.
func postgresCPU(t *testing.T, pg *harness.PG) time.Duration {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(pg.Server.Dir(), "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	master, _, _ := strings.Cut(string(text), "\n")
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	ticks := 0
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		pid, _, _ := strings.Cut(string(text), " ")
		fields := strings.Fields(string(text[strings.LastIndex(string(text), ")")+1:]))
		mine := fields[11:13]
		if pid == master {
			mine = fields[11:15] // and its children's that have ended
		} else if fields[1] != master {
			continue
		}
		for _, f := range mine {
			n, _ := strconv.Atoi(f)
			ticks += n
		}
	}
	return time.Duration(ticks) * time.Second / 100
}
