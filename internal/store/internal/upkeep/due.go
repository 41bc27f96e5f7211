package upkeep

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
)

// This file asks for many outboxes at once which of them may have something to be removed, for a Store that covers
// them: thousands of statements that mostly find nothing cost the server and the relay much more.

// oldestSQL looks at the first batch of each source by the primary key. Batches become old in the order of their
// numbers; see head.
const oldestSQL = `SELECT s FROM unnest($1::integer[]) s WHERE (SELECT published_at FROM {batch} b
 WHERE b.source = s%s ORDER BY b.batch LIMIT 1) < now() - $2 * interval '1 microsecond'`

// Prunable are the sources of the outboxes for which [Upkeep.Prune] may find something.
func (s *Upkeep) Prunable(ctx context.Context, retention time.Duration) ([]int32, error) {
	return s.due(ctx, fmt.Sprintf(oldestSQL, ""), retention)
}

// Deletable are the sources of the outboxes for which [Upkeep.DeleteStep] may find something.
func (s *Upkeep) Deletable(ctx context.Context, retention time.Duration) ([]int32, error) {
	return s.due(ctx, fmt.Sprintf(oldestSQL, " AND NOT b.deleted"), retention)
}

// DeadPrunable are the sources of the outboxes for which [Upkeep.PruneDead] may find something.
func (s *Upkeep) DeadPrunable(ctx context.Context, retention time.Duration) ([]int32, error) {
	return s.due(ctx, `SELECT DISTINCT source FROM {dlq} WHERE source = ANY ($1::integer[])
 AND greatest(replayed_at, discarded_at) < now() - $2 * interval '1 microsecond'`, retention)
}

// due returns what the query gives for the sources $1 and the age $2.
func (s *Upkeep) due(ctx context.Context, query string, age time.Duration) (sources []int32, err error) {
	_, of := s.db.Mine("", s.db.Source())
	if one, is := of.(int32); is {
		of = []int32{one}
	}
	err = s.db.Tx(ctx, db.Reading, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.db.Names.SQL(query), of, age.Microseconds())
		if err == nil {
			sources, err = pgx.CollectRows(rows, pgx.RowTo[int32])
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for outboxes with something to be removed: %w", err)
	}
	return sources, nil
}
