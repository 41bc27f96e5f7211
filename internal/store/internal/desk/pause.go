package desk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// Paused is nil when the slot's relay is not paused, or has no state yet.
func (s *Desk) Paused(ctx context.Context) (*record.Pause, error) {
	var p *record.Pause
	err := s.db.One(ctx, db.Reading, func(row pgx.Row) (err error) {
		p, err = scanPause(row)
		return err
	}, s.db.Names.SQL(`SELECT paused_at, coalesce(paused_by, ''), coalesce(paused_note, '') FROM {state} WHERE slot = $1`),
		s.db.Config.Slot)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("read whether the relay is paused: %w", err)
	}
	return p, nil
}

func scanPause(row pgx.Row) (*record.Pause, error) {
	var at *time.Time
	var p record.Pause
	if err := row.Scan(&at, &p.By, &p.Note); err != nil || at == nil {
		return nil, err
	}
	p.Since = *at
	return &p, nil
}

// SetPause executes a request to pause or to resume and closes it, in one transaction, and says what holds now. A relay
// that is paused already stays so since then. Fenced.
func (s *Desk) SetPause(ctx context.Context, r *record.Request) (p *record.Pause, err error) {
	err = s.db.Fenced(ctx, db.Writing, func(tx pgx.Tx) error {
		var err error
		if r.Kind == record.RequestResume {
			_, err = tx.Exec(ctx,
				s.db.Names.SQL(
					`UPDATE {state} SET paused_at = NULL, paused_by = NULL, paused_note = NULL WHERE slot = $1
 AND paused_at IS NOT NULL`), s.db.Config.Slot)
		} else {
			_, err = tx.Exec(ctx,
				s.db.Names.SQL(
					`UPDATE {state} SET paused_at = now(), paused_by = $2, paused_note = NULLIF($3, '') WHERE slot = $1
 AND paused_at IS NULL`), s.db.Config.Slot, r.Who, r.Note)
		}
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx,
			s.db.Names.SQL(
				`UPDATE {request} SET started_at = now(), finished_at = now(), total = 1, done = 1 WHERE id = $1
 AND finished_at IS NULL`), r.ID)
		if err != nil {
			return err
		}
		p, err = scanPause(tx.QueryRow(ctx,
			s.db.Names.SQL(`SELECT paused_at, coalesce(paused_by, ''), coalesce(paused_note, '') FROM {state} WHERE slot = $1`),
			s.db.Config.Slot))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Kind, err)
	}
	return p, nil
}
