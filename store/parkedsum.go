package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// ParkedSum is what parked events wait for, by number. Names in JSON are stable.
type ParkedSum struct {
	Matching int64    `json:"matching"`          // all that the filter chooses
	Troubled int64    `json:"waiting_for_topic"` // until their topic or partition is well: it is looked at all the time
	Behind   int64    `json:"behind_others"`     // of their key: parked in front of them, or dead and held
	Due      int64    `json:"due"`               // already
	Topics   []string `json:"topics_in_trouble"` // of Troubled, the first in the alphabet
}

const topicsNamed = 5

// ParkedSum counts the parked events that the filter chooses, each by itself and not with its key.
func (s *Store) ParkedSum(ctx context.Context, f Filter) (sum ParkedSum, err error) {
	o, source, err := s.outboxAndSource(ctx)
	c := conditions{args: []any{source, topicsNamed}}
	if err == nil {
		err = c.matching(f, parkedPlace, o, "now()")
	}
	if err == nil {
		err = s.one(ctx, scanning, func(row pgx.Row) error {
			return row.Scan(&sum.Matching, &sum.Troubled, &sum.Behind, &sum.Due, &sum.Topics)
		}, s.names.sql(`SELECT count(*), count(*) FILTER (WHERE p.next_retry_at = 'infinity'), count(*) FILTER (WHERE p.next_retry_at IS NULL),
 count(*) FILTER (WHERE p.next_retry_at <= now()), (coalesce(array_agg(DISTINCT p.topic) FILTER (WHERE p.next_retry_at = 'infinity'), '{}'))[1:$2::int]
FROM {parked} p WHERE p.source = $1`+c.text.String()), c.args...)
	}
	if err != nil {
		return ParkedSum{}, fmt.Errorf("count parked events: %w", err)
	}
	return sum, nil
}
