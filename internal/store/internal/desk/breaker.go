package desk

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// breakerBatches bounds the journal's batches that Breaker looks at.
const breakerBatches = 10_000

// Breaker reads the state of dlq.breaker, which does not count dead letters of the codes apart.
func (s *Desk) Breaker(ctx context.Context, window time.Duration,
	apart []string) (b record.BreakerState, err error) {
	o, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		text, of := s.db.Mine(s.db.SQL(o, `SELECT t.breaker_at IS NOT NULL, coalesce(t.breaker_said, ''),
 (SELECT count(*) FROM {dlq} WHERE source = $1 AND replayed_at IS NULL AND discarded_at IS NULL
   AND dead_at > greatest(now() - $3 * interval '1 microsecond', t.resumed_at)
   AND error_code <> ALL (coalesce($5::text[], '{}'))),
 (SELECT coalesce(sum(size), 0)::bigint FROM (SELECT size, published_at FROM {batch} WHERE source = $1
 ORDER BY batch DESC LIMIT $4) b
   WHERE published_at > greatest(now() - $3 * interval '1 microsecond', t.resumed_at))
FROM {state} t WHERE t.slot = $2`), source)
		err = s.db.One(ctx, db.Reading, func(row pgx.Row) error { return row.Scan(&b.Open, &b.Said, &b.Dead, &b.Published) },
			text, of, s.db.StateKey(), window.Microseconds(), breakerBatches, apart)
	}
	if err != nil {
		return record.BreakerState{}, fmt.Errorf("read the state of dlq.breaker: %w", err)
	}
	return b, nil
}

// OpenBreaker records, durably, that dlq.breaker is open and why. Fenced.
func (s *Desk) OpenBreaker(ctx context.Context, said string) error {
	return s.setBreaker(ctx, `breaker_at = coalesce(breaker_at, now()), breaker_said = $2`, s.db.Clean(said))
}

// CloseBreaker records that it is closed: deaths from before do not count any more. Fenced.
func (s *Desk) CloseBreaker(ctx context.Context) error {
	return s.setBreaker(ctx, `breaker_at = NULL, breaker_said = NULL, resumed_at = now()`)
}

func (s *Desk) setBreaker(ctx context.Context, set string, args ...any) error {
	err := s.db.Fenced(ctx, db.Writing, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.db.Names.SQL(`UPDATE {state} SET `+set+` WHERE slot = $1`),
			append([]any{s.db.StateKey()}, args...)...)
		return err
	})
	if err != nil {
		return fmt.Errorf("record the state of dlq.breaker: %w", err)
	}
	return nil
}
