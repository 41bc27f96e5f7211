package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// BreakerState is what dlq.breaker knows across restarts.
type BreakerState struct {
	Open bool   // it was opened and nobody closed it
	Said string // why
	// Within the window, as far as a glance tells: dead letters that are open, those apart that a person has let pass, and
	// events that were journaled.
	Dead, Published int64
}

// breakerBatches bounds the journal's batches that Breaker looks at.
const breakerBatches = 10_000

// Breaker reads the state of dlq.breaker.
func (s *Store) Breaker(ctx context.Context, window time.Duration) (b BreakerState, err error) {
	o, source, err := s.outboxAndSource(ctx)
	if err == nil {
		err = s.one(ctx, reading, func(row pgx.Row) error { return row.Scan(&b.Open, &b.Said, &b.Dead, &b.Published) },
			s.sql(o, `SELECT t.breaker_at IS NOT NULL, coalesce(t.breaker_said, ''),
 (SELECT count(*) FROM {dlq} WHERE source = $1 AND replayed_at IS NULL AND discarded_at IS NULL
   AND dead_at > greatest(now() - $3 * interval '1 microsecond', t.resumed_at)),
 (SELECT coalesce(sum(size), 0)::bigint FROM (SELECT size, published_at FROM {batch} WHERE source = $1 ORDER BY batch DESC LIMIT $4) b
   WHERE published_at > greatest(now() - $3 * interval '1 microsecond', t.resumed_at))
FROM {state} t WHERE t.slot = $2`), source, s.config.Slot, window.Microseconds(), breakerBatches)
	}
	if err != nil {
		return BreakerState{}, fmt.Errorf("read the state of dlq.breaker: %w", err)
	}
	return b, nil
}

// OpenBreaker records, durably, that dlq.breaker is open and why. Fenced.
func (s *Store) OpenBreaker(ctx context.Context, said string) error {
	return s.setBreaker(ctx, `breaker_at = coalesce(breaker_at, now()), breaker_said = $2`, clean(said))
}

// CloseBreaker records that it is closed: deaths from before do not count any more. Fenced.
func (s *Store) CloseBreaker(ctx context.Context) error {
	return s.setBreaker(ctx, `breaker_at = NULL, breaker_said = NULL, resumed_at = now()`)
}

func (s *Store) setBreaker(ctx context.Context, set string, args ...any) error {
	err := s.fenced(ctx, writing, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.names.sql(`UPDATE {state} SET `+set+` WHERE slot = $1`), append([]any{s.config.Slot}, args...)...)
		return err
	})
	if err != nil {
		return fmt.Errorf("record the state of dlq.breaker: %w", err)
	}
	return nil
}
