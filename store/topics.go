package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Offset says that all our records of a partition below Next are journaled.
type Offset struct {
	Topic     string
	Partition int32
	Next      int64
}

// TopicTail is where the records of ours begin that may not be journaled.
type TopicTail struct {
	Topic string
	From  map[int32]int64 // by partition; the first offset that is not known to be journaled
	Since time.Time       // when the topic was first used: the start for partitions that are not in From
}

// topicItself is the partition number of the row that stands for the whole topic.
const topicItself = -1

// AddTopics commits, durably, that records will go to the topics. It comes before the first record to each, or a crash
// would leave records that no start looks for. Topics that are known stay as they are. Fenced.
func (s *Store) AddTopics(ctx context.Context, topics []string) error {
	err := s.fenced(ctx, writing, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.names.sql(`INSERT INTO {offset} (slot, topic, partition, next_offset)
SELECT $1, t, $2, 0 FROM unnest($3::text[]) t ON CONFLICT DO NOTHING`), s.config.Slot, topicItself, topics)
		return err
	})
	if err != nil {
		return fmt.Errorf("record %d new topics: %w", len(topics), err)
	}
	return nil
}

// SaveOffsets records how far partitions are journaled. It does not wait for the disk: an offset that is too low only
// makes the next start read more. The caller limits the rate to one per second. Fenced.
func (s *Store) SaveOffsets(ctx context.Context, offsets []Offset) error {
	if len(offsets) == 0 {
		return nil
	}
	topics, partitions, next := make([]string, len(offsets)), make([]int32, len(offsets)), make([]int64, len(offsets))
	for i, o := range offsets {
		topics[i], partitions[i], next[i] = o.Topic, o.Partition, o.Next
	}
	l := writing
	l.commit = relaxed
	err := s.fenced(ctx, l, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.names.sql(`INSERT INTO {offset} (slot, topic, partition, next_offset)
SELECT $1, u.* FROM unnest($2::text[], $3::int[], $4::bigint[]) u
ON CONFLICT (slot, topic, partition) DO UPDATE SET next_offset = excluded.next_offset`), s.config.Slot, topics, partitions, next)
		return err
	})
	if err != nil {
		return fmt.Errorf("save the offsets of %d partitions: %w", len(offsets), err)
	}
	return nil
}

// Tails are the topics that this slot's records were sent to, each with where to begin to read it back.
func (s *Store) Tails(ctx context.Context) ([]TopicTail, error) {
	var tails []TopicTail
	err := s.tx(ctx, reading, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.names.sql(`SELECT topic, partition, next_offset, since FROM {offset} WHERE slot = $1 ORDER BY topic, partition`), s.config.Slot)
		if err != nil {
			return err
		}
		var topic string
		var partition int32
		var next int64
		var since time.Time
		_, err = pgx.ForEachRow(rows, []any{&topic, &partition, &next, &since}, func() error {
			if len(tails) == 0 || tails[len(tails)-1].Topic != topic {
				tails = append(tails, TopicTail{Topic: topic, From: map[int32]int64{}, Since: since})
			}
			if partition != topicItself {
				tails[len(tails)-1].From[partition] = next
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
