package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Start is the database's state of an assigned partition.
type Start struct {
	Known    bool   // there is a row, and it is of this topic and not of another one of its name
	Next     int64  // valid when Known
	FormerID string // another topic of the name
	Former   int64  // and how far it was decided
	Unclean  bool   // the last holder has not released it: it died, or still runs
}

// Partition names a partition and the topic's id, which tells a topic from another one that was created with its name.
type Partition struct {
	Place
	TopicID string
	Next    int64 // where to begin when the database does not know it, or how far it is decided
	Wrote   int64 // what this process wrote or read last: the database has no less
}

// Starts reads how far the partitions are, and enters the holder. first says where to begin with one that the database
// does not know.
func (l *Ledger) Starts(
	ctx context.Context, holder string, partitions []Partition,
) (map[Place]Start, error) {
	starts := make(map[Place]Start, len(partitions))
	read := slices.Clone(partitions)
	err := l.within(ctx, "read offsets", func(tx pgx.Tx) error {
		for i, p := range partitions {
			s, err := l.start(ctx, tx, holder, p)
			if err != nil {
				return err
			}
			starts[p.Place] = s
			if s.Known {
				read[i].Next = s.Next
			}
		}
		return nil
	})
	if err == nil {
		l.read(read)
	}
	return starts, err
}

// start is Starts for one of them.
func (l *Ledger) start(ctx context.Context, tx pgx.Tx, holder string, p Partition) (s Start, err error) {
	var topicID string
	var before *string
	err = tx.QueryRow(ctx, `SELECT topic_id, next_offset, holder FROM `+l.schema+`inbox_offset
		WHERE consumer = $1 AND topic = $2 AND partition = $3 FOR UPDATE`, l.consumer, p.Topic, p.Partition).
		Scan(&topicID, &s.Next, &before)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return s, err
	}
	s.Known = err == nil && topicID == p.TopicID
	if err == nil && !s.Known {
		s.FormerID, s.Former = topicID, s.Next
	}
	s.Unclean = before != nil && *before != holder
	_, err = tx.Exec(ctx, `INSERT INTO `+l.schema+`inbox_offset AS o
		(consumer, topic, partition, topic_id, next_offset, holder) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (consumer, topic, partition) DO UPDATE SET holder = excluded.holder, at = now(),
		next_offset = CASE WHEN o.topic_id = excluded.topic_id THEN o.next_offset ELSE excluded.next_offset END,
		topic_id = excluded.topic_id`, l.consumer, p.Topic, p.Partition, p.TopicID, p.Next, holder)
	return s, err
}

// Note writes how far partitions are decided. The offsets only grow: one that is less than what this process wrote or
// read last was set back, and then nothing is written.
func (l *Ledger) Note(ctx context.Context, partitions []Partition) error {
	topics, ids := make([]string, len(partitions)), make([]string, len(partitions))
	numbers, next := make([]int32, len(partitions)), make([]int64, len(partitions))
	wrote := make([]int64, len(partitions))
	for i, p := range partitions {
		topics[i], numbers[i], ids[i], next[i], wrote[i] = p.Topic, p.Partition, p.TopicID, p.Next, p.Wrote
	}
	return l.within(ctx, "note offsets", func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `WITH mine AS (
				SELECT * FROM unnest($2::text[], $3::integer[], $4::text[], $5::bigint[], $6::bigint[])
					AS u (topic, partition, topic_id, next, wrote)),
			moved AS (UPDATE `+l.schema+`inbox_offset o SET next_offset = greatest(o.next_offset, u.next), at = now()
				FROM mine u WHERE o.consumer = $1 AND o.topic = u.topic AND o.partition = u.partition
				AND o.topic_id = u.topic_id AND o.next_offset >= u.wrote AND u.next > u.wrote)
			SELECT format('%s/%s: this process wrote offset %s, and the database has %s', u.topic, u.partition, u.wrote,
				CASE WHEN o.topic_id <> u.topic_id THEN 'another topic of that name'
					ELSE coalesce(o.next_offset::text, 'none') END)
			FROM mine u LEFT JOIN `+l.schema+`inbox_offset o
				ON o.consumer = $1 AND o.topic = u.topic AND o.partition = u.partition
			WHERE o.topic_id IS DISTINCT FROM u.topic_id OR o.next_offset < u.wrote ORDER BY 1`,
			l.consumer, topics, numbers, ids, next, wrote)
		if err != nil {
			return err
		}
		behind, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err == nil && len(behind) > 0 {
			err = fmt.Errorf("%w: %s", ErrSetBack, strings.Join(behind, "; "))
		}
		return err
	})
}

// Release reports that the holder has ended its work on the partitions in good order.
func (l *Ledger) Release(ctx context.Context, holder string, places []Place) error {
	return l.within(ctx, "release partitions", func(tx pgx.Tx) error {
		for _, p := range places {
			_, err := tx.Exec(ctx, `UPDATE `+l.schema+`inbox_offset SET holder = NULL
				WHERE consumer = $1 AND topic = $2 AND partition = $3 AND holder = $4`,
				l.consumer, p.Topic, p.Partition, holder)
			if err != nil {
				return err
			}
		}
		return nil
	})
}
