package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Config says where the events come from and where their effects go.
type Config struct {
	DatabaseURL string
	Brokers     []string
	Topics      []string
	Group       string
}

// schema is what idempotence needs, processed_event_ids, and the effect of this example. The ids' order is that of
// their arrival, nearly, so the BRIN index on the time stays small and finds what is old.
const schema = `
CREATE TABLE IF NOT EXISTS processed_event_ids (
    event_id     text PRIMARY KEY,
    processed_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS processed_event_ids_by_time ON processed_event_ids USING brin (processed_at);
CREATE TABLE IF NOT EXISTS events_per_key (
    key    text PRIMARY KEY,
    events bigint NOT NULL
)`

const (
	pollMost  = 500 // records handled in one transaction
	tryAgain  = time.Second
	keepIDs   = 14 * 24 * time.Hour // longer than a message can come again: see docs/consumers.md
	forgetOld = `DELETE FROM processed_event_ids WHERE event_id = ANY (ARRAY(
		SELECT event_id FROM processed_event_ids WHERE processed_at < now() - $1 * interval '1 second' LIMIT 10000 FOR UPDATE SKIP LOCKED))`
)

// Consume handles events until the context ends. The offsets are committed behind the database's transaction: what lies
// between the two comes again after a crash, and its ids are found.
func Consume(ctx context.Context, c Config) error {
	db, err := pgxpool.New(ctx, c.DatabaseURL)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.Exec(ctx, schema); err != nil {
		return fmt.Errorf("create the tables: %w", err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Brokers...), kgo.ConsumerGroup(c.Group), kgo.ConsumeTopics(c.Topics...),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	forgotten := time.Now()
	for {
		fetches := client.PollRecords(ctx, pollMost)
		if ctx.Err() != nil {
			return nil
		}
		fetches.EachError(func(topic string, partition int32, err error) {
			log.Printf("topic %s, partition %d: %v", topic, partition, err) // the client tries again
		})
		records := fetches.Records()
		for err := handle(ctx, db, records); err != nil; err = handle(ctx, db, records) {
			log.Printf("handle %d events: %v; trying again", len(records), err)
			if !sleep(ctx, tryAgain) {
				return nil
			}
		}
		if err := client.CommitRecords(ctx, records...); err != nil && !errors.Is(err, context.Canceled) {
			log.Printf("commit offsets: %v", err) // they come again, and are known
		}
		client.AllowRebalance()
		if time.Since(forgotten) > time.Hour {
			forgotten = time.Now()
			if _, err := db.Exec(ctx, forgetOld, keepIDs.Seconds()); err != nil {
				log.Printf("forget old ids: %v", err)
			}
		}
	}
}

// handle applies the events that are new, in order, and notes their ids, all or none.
func handle(ctx context.Context, db *pgxpool.Pool, records []*kgo.Record) error {
	if len(records) == 0 {
		return nil
	}
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		for _, rec := range records {
			// Two consumers that have the same event at once, as around a rebalance, meet here: the second waits for the
			// first's transaction, and then finds the id.
			tag, err := tx.Exec(ctx, `INSERT INTO processed_event_ids (event_id) VALUES ($1) ON CONFLICT DO NOTHING`, eventID(rec))
			if err != nil {
				return err
			}
			if tag.RowsAffected() == 0 {
				continue // a duplicate
			}
			if err := apply(ctx, tx, rec); err != nil {
				return err
			}
		}
		return nil
	})
}

// eventID is what identifies an event, whatever message it comes in.
func eventID(rec *kgo.Record) string {
	for _, h := range rec.Headers {
		if h.Key == "id" {
			return string(h.Value)
		}
	}
	// No message of the relay. Its place is the best that there is to tell it by.
	return fmt.Sprintf("%s/%d/%d", rec.Topic, rec.Partition, rec.Offset)
}

// apply is the effect of an event: yours goes here, in this transaction.
func apply(ctx context.Context, tx pgx.Tx, rec *kgo.Record) error {
	_, err := tx.Exec(ctx, `INSERT INTO events_per_key AS e (key, events) VALUES ($1, 1)
		ON CONFLICT (key) DO UPDATE SET events = e.events + 1`, string(rec.Key))
	return err
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
