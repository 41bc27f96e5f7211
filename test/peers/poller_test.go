package peers

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	kafkago "github.com/segmentio/kafka-go"
)

// What the worker's author chose: a poll every 100 ms, at once after a full batch, and another try after a second.
const (
	pollInterval = 100 * time.Millisecond
	pollBatch    = 500
	pollRetry    = time.Second
)

// largestRecord is the clients' own limit, in bytes, above the topics' one, which is the one to decide.
const largestRecord = 8 << 20

// pollerIndex is the index by which the worker finds rows.
const pollerIndex = "CREATE INDEX unpublished ON outbox_events (seq) WHERE published_at IS NULL"

// poll is a polling worker as people write it: rows that are not published are locked, produced and marked, in one
// transaction. What goes wrong is logged and tried again.
func (o orders) poll(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, o.URL)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer pool.Close()
	writer := &kafkago.Writer{
		Addr: kafkago.TCP(o.Brokers...), RequiredAcks: kafkago.RequireAll,
		Balancer:  kafkago.Murmur2Balancer{Consistent: true},
		BatchSize: pollBatch, BatchTimeout: 5 * time.Millisecond, // not its default of a second
		BatchBytes: largestRecord,
	}
	defer writer.Close()
	for ctx.Err() == nil {
		n, err := o.pollOnce(ctx, pool, writer)
		wait := pollInterval
		switch {
		case err != nil:
			fmt.Fprintln(os.Stderr, "poller:", err)
			wait = pollRetry
		case n == pollBatch:
			continue
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
	return nil
}

// pollOnce publishes and marks the next rows, and returns how many.
func (o orders) pollOnce(ctx context.Context, pool *pgxpool.Pool, writer *kafkago.Writer) (n int, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT id::text, aggregate_type, aggregate_id, payload::text FROM outbox_events
			WHERE published_at IS NULL ORDER BY seq LIMIT $1 FOR UPDATE SKIP LOCKED`, pollBatch)
		if err != nil {
			return fmt.Errorf("poll: %w", err)
		}
		var ids []string
		var messages []kafkago.Message
		var id, aggregateType, key, payload string
		_, err = pgx.ForEachRow(rows, []any{&id, &aggregateType, &key, &payload}, func() error {
			ids = append(ids, id)
			messages = append(messages, kafkago.Message{Topic: o.Topic + aggregateType, Key: []byte(key),
				Value: []byte(payload), Headers: []kafkago.Header{{Key: "id", Value: []byte(id)}}})
			return nil
		})
		if n = len(ids); err != nil || n == 0 {
			return err
		}
		if err := writer.WriteMessages(ctx, messages...); err != nil {
			return fmt.Errorf("produce: %w", err)
		}
		_, err = tx.Exec(ctx, `UPDATE outbox_events SET published_at = now() WHERE id = ANY($1::uuid[])`, ids)
		return err
	})
	return n, err
}
