package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// AddTopics commits, durably, that records will go to the topics. It comes before the first record to each, or a crash
// would leave records that no start looks for. Topics that are known stay as they are. Fenced.
func (s *Lease) AddTopics(ctx context.Context, topics []string) error {
	err := s.db.Fenced(ctx, db.Writing, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.db.Names.SQL(`INSERT INTO {offset} (slot, topic, partition, next_offset)
SELECT $1, t, $2, 0 FROM unnest($3::text[]) t ON CONFLICT DO NOTHING`), s.db.Config.Slot, record.TopicItself, topics)
		return err
	})
	if err != nil {
		return fmt.Errorf("record %d new topics: %w", len(topics), err)
	}
	return nil
}

// SaveOffsets records how far partitions are journaled. It does not wait for the disk: an offset that is too low only
// makes the next start read more. The caller limits the rate to one per second. Fenced.
func (s *Lease) SaveOffsets(ctx context.Context, offsets []record.Offset) error {
	if len(offsets) == 0 {
		return nil
	}
	topics, partitions, next := make([]string, len(offsets)), make([]int32, len(offsets)), make([]int64, len(offsets))
	for i, o := range offsets {
		topics[i], partitions[i], next[i] = o.Topic, o.Partition, o.Next
	}
	err := s.db.Fenced(ctx, db.Noting, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.db.Names.SQL(`INSERT INTO {offset} (slot, topic, partition, next_offset)
SELECT $1, u.* FROM unnest($2::text[], $3::int[], $4::bigint[]) u
ON CONFLICT (slot, topic, partition) DO UPDATE SET next_offset = excluded.next_offset`), s.db.Config.Slot, topics,
			partitions, next)
		return err
	})
	if err != nil {
		return fmt.Errorf("save the offsets of %d partitions: %w", len(offsets), err)
	}
	return nil
}

// Tails are the topics that this slot's records were sent to, each with where to begin to read it back.
func (s *Lease) Tails(ctx context.Context) ([]record.TopicTail, error) {
	var tails []record.TopicTail
	err := s.db.Tx(ctx, db.Reading, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx,
			s.db.Names.SQL(
				`SELECT topic, partition, next_offset, since FROM {offset} WHERE slot = $1 ORDER BY topic, partition`),
			s.db.Config.Slot)
		if err != nil {
			return err
		}
		var topic string
		var partition int32
		var next int64
		var since time.Time
		_, err = pgx.ForEachRow(rows, []any{&topic, &partition, &next, &since}, func() error {
			if len(tails) == 0 || tails[len(tails)-1].Topic != topic {
				tails = append(tails, record.TopicTail{Topic: topic, From: map[int32]int64{}, Since: since})
			}
			switch tail := &tails[len(tails)-1]; partition {
			case record.TopicItself:
				tail.Cluster = next
			case record.TopicID:
				tail.ID = next
			default:
				tail.From[partition] = next
			}
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the topics' offsets: %w", err)
	}
	return tails, nil
}
