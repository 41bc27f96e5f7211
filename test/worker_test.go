package test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/internal/doctor/verify"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// workerTables are a polling worker's index, and its notes for the judge.
const workerTables = `CREATE INDEX outbox_unpublished ON outbox_events (seq) WHERE published_at IS NULL;
	CREATE TABLE worker_journal (event_id uuid, topic text, partition int, "offset" bigint)`

// workerBatch is how many rows a worker takes at once; it polls every workerInterval.
const (
	workerBatch    = 200
	workerInterval = 20 * time.Millisecond
)

// worker is a usual polling worker: unpublished rows are locked, sent and marked, in one
// transaction.
type worker struct {
	stop chan struct{}
	done chan error
	sent int // once it has stopped
}

// startWorker begins to poll. Its messages are those of the relay, but for the headers that only the relay can know.
func (s *scenario) startWorker(t *testing.T) *worker {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.kafka.Addrs...), kgo.ProducerLinger(0),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		t.Fatalf("make a producer: %v", err)
	}
	w := &worker{stop: make(chan struct{}), done: make(chan error, 1)}
	conn := s.pg.Connect(t)
	go func() {
		defer client.Close()
		w.done <- w.run(t.Context(), conn, client, s.settings.Topic)
	}()
	return w
}

// Stop lets it finish its batch.
func (w *worker) Stop(t *testing.T) {
	t.Helper()
	close(w.stop)
	if err := <-w.done; err != nil {
		t.Fatalf("the polling worker: %v", err)
	}
}

func (w *worker) run(ctx context.Context, conn *pgx.Conn, client *kgo.Client, topic func(string) string) error {
	ticker := time.NewTicker(workerInterval)
	defer ticker.Stop()
	for {
		select {
		case <-w.stop:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return w.batch(ctx, tx, client, topic) }); err != nil {
			return err
		}
	}
}

// batch sends the next rows and marks them. The order is that of seq, which is that of the commits within a key: a
// workload's writers hold the key's lock until they have committed.
func (w *worker) batch(ctx context.Context, tx pgx.Tx, client *kgo.Client, topic func(string) string) error {
	rows,
		err := tx.Query(ctx,
		`SELECT id::text, aggregate_type, aggregate_id, event_type, payload::text, headers ->> 'traceparent', created_at
		FROM outbox_events WHERE published_at IS NULL ORDER BY seq LIMIT $1 FOR UPDATE SKIP LOCKED`, workerBatch)
	if err != nil {
		return fmt.Errorf("poll: %w", err)
	}
	var ids, topics []string
	var records []*kgo.Record
	var id, aggregateType, eventType, trace string
	var key, payload []byte
	var created time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &aggregateType, &key, &eventType, &payload, &trace, &created}, func() error {
		r := &kgo.Record{Topic: topic(aggregateType), Key: append([]byte(nil), key...),
			Value: append([]byte(nil), payload...)}
		for name, value := range map[string]string{"id": id, "event_type": eventType, "aggregate_type": aggregateType,
			"created_at": created.UTC().Format(time.RFC3339Nano), "traceparent": trace} {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
		ids, topics, records = append(ids, id), append(topics, r.Topic), append(records, r)
		return nil
	})
	if err != nil || len(records) == 0 {
		return err
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	partitions, offsets := make([]int32, len(records)), make([]int64, len(records))
	for n, r := range records {
		partitions[n], offsets[n] = r.Partition, r.Offset
	}
	_,
		err = tx.Exec(ctx,
		`WITH noted AS (INSERT INTO worker_journal SELECT * FROM unnest($1::uuid[], $2::text[], $3::int[], $4::bigint[]))
		UPDATE outbox_events SET published_at = now() WHERE id = ANY ($1)`, ids, topics, partitions, offsets)
	if err != nil {
		return fmt.Errorf("mark what was sent: %w", err)
	}
	w.sent += len(records)
	return nil
}

// judgeBoth is the judgement of what a worker and the relay have sent together: each event once, by one of the two, in
// order.
func (s *scenario) judgeBoth(t *testing.T) verify.Report {
	t.Helper()
	return s.verdict(t, 0, harness.Audit{InOrder: true,
		Journal: `(SELECT * FROM worker_journal UNION ALL SELECT event_id, topic, partition, "offset" FROM cdc_relay_journal)
			j`})
}
