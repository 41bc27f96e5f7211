package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

// pollerVariable holds the orders of a process that is a polling worker.
const pollerVariable = "CDC_RELAY_BENCH_POLLER"

// What the worker's author chose: a poll every 100 ms, and at once after a full batch.
const (
	pollInterval = 100 * time.Millisecond
	pollBatch    = 1000
)

// poller is a usual alternative to reading the WAL: unpublished rows are locked, produced and marked, in
// one transaction. There is one of it and one outbox, so its order is that of seq; with several sessions writing one
// aggregate it would send rows out of order that become visible out of order, which is not so here.
type poller struct {
	URL     string // of the database
	Brokers []string
	Topic   string
}

// pollerIndex is the index by which the worker finds rows.
const pollerIndex = "CREATE INDEX bench_unpublished ON outbox_events (seq) WHERE published_at IS NULL"

// runPoller is the process: it returns its exit code after SIGTERM.
func runPoller(text string) int {
	var p poller
	err := json.Unmarshal([]byte(text), &p)
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		err = p.run(ctx)
		if errors.Is(err, context.Canceled) {
			return 0
		}
	}
	fmt.Fprintln(os.Stderr, "poller:", err)
	return 1
}

// run polls until the context ends.
func (p poller) run(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, p.URL)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	client, err := kgo.NewClient(kgo.SeedBrokers(p.Brokers...), kgo.DefaultProduceTopic(p.Topic), kgo.ProducerLinger(0),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return fmt.Errorf("make a producer: %w", err)
	}
	defer client.Close()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		n, err := p.batch(ctx, conn, client)
		if err != nil {
			return err
		}
		if n == pollBatch {
			continue
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// batch publishes and marks the next rows, and returns how many.
func (p poller) batch(ctx context.Context, conn *pgx.Conn, client *kgo.Client) (n int, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT id, id::text, aggregate_id, event_type, payload::text FROM outbox_events
			WHERE published_at IS NULL ORDER BY seq LIMIT $1 FOR UPDATE SKIP LOCKED`, pollBatch)
		if err != nil {
			return fmt.Errorf("poll: %w", err)
		}
		var ids [][16]byte
		var records []*kgo.Record
		var id [16]byte
		var name, key, eventType, payload string
		_, err = pgx.ForEachRow(rows, []any{&id, &name, &key, &eventType, &payload}, func() error {
			ids = append(ids, id)
			records = append(records, &kgo.Record{Key: []byte(key), Value: []byte(payload), Headers: []kgo.RecordHeader{
				{Key: "id", Value: []byte(name)}, {Key: "event_type", Value: []byte(eventType)},
			}})
			return nil
		})
		if n = len(records); err != nil || n == 0 {
			return err
		}
		if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
			return fmt.Errorf("produce: %w", err)
		}
		if _, err := tx.Exec(ctx, `UPDATE outbox_events SET published_at = now() WHERE id = ANY($1)`, ids); err != nil {
			return fmt.Errorf("mark what was published: %w", err)
		}
		return nil
	})
	return n, err
}
