package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// This file keeps what the stream brought while it could not be sent. A row is written by the owner of the slot and
// becomes durable before its end is confirmed.

// OpenSpool deletes what was stored of a transaction whose end was not, since the stream brings that transaction again
// from its beginning, and tells what is left. The transaction may have been of any size. Fenced.
func (s *Queue) OpenSpool(ctx context.Context) (st record.SpoolState, err error) {
	for more := true; more && err == nil; {
		err = s.db.Fenced(ctx, db.Writing, func(tx pgx.Tx) error {
			done, err := tx.Exec(ctx, s.db.Names.SQL(`DELETE FROM {spool} WHERE source = $1 AND number IN (
 SELECT number FROM {spool} WHERE source = $1 AND number > (
  SELECT coalesce(max(number), 0) FROM {spool} WHERE source = $1 AND ends > 0) LIMIT $2)`), s.db.Source(), spoolStep)
			if err != nil {
				return err
			}
			more = done.RowsAffected() == spoolStep
			return nil
		})
	}
	if err == nil { // only the owner writes, and this reads all rows: it has more time by itself
		err = s.db.Tx(ctx, db.Reading, func(tx pgx.Tx) (err error) {
			st, err = s.spooled(ctx, tx)
			return err
		})
	}
	if err != nil {
		return st, fmt.Errorf("open the spool: %w", err)
	}
	return st, nil
}

const (
	spoolStep = 100     // rows that are deleted in one transaction
	spoolRow  = 1 << 20 // bytes of a row, at most but for large events
)

// Spooled tells what is spooled: nothing before the slot's first session, nor in tables of a version without a spool.
func (s *Queue) Spooled(ctx context.Context) (st record.SpoolState, err error) {
	state, err := s.db.State(ctx)
	if err != nil || state == nil {
		return st, err
	}
	err = s.db.Tx(ctx, db.Reading, func(tx pgx.Tx) (err error) {
		st, err = s.spooled(ctx, tx)
		return err
	})
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "42P01" { // undefined_table
		return st, nil
	}
	if err != nil {
		return st, fmt.Errorf("read the spool: %w", err)
	}
	return st, nil
}

func (s *Queue) spooled(ctx context.Context, tx pgx.Tx) (st record.SpoolState, err error) {
	var ends int64
	err = tx.QueryRow(ctx, s.db.Names.SQL(`SELECT f.number, l.number, l.era, l.ends, f.committed_at,
 (SELECT sum(events) FROM {spool} WHERE source = $1)
FROM (SELECT number, committed_at FROM {spool} WHERE source = $1 ORDER BY number LIMIT 1) f,
 (SELECT number, era, ends FROM {spool} WHERE source = $1 ORDER BY number DESC LIMIT 1) l`), s.db.Source()).
		Scan(&st.First, &st.Last, &st.Era, &ends, &st.Oldest, &st.Events)
	st.Ends = outbox.LSN(ends)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return st, err
}

// Spool stores a row, durably. A row that is there already stays as it is: the answer of its first attempt was lost.
// Fenced.
func (s *Queue) Spool(ctx context.Context, r record.Spooled) error {
	err := s.db.Fenced(ctx, db.Writing.For(len(r.Data)), func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.db.Names.SQL(`INSERT INTO {spool} (source, number, era, ends, committed_at, events, data)
VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`), s.db.Source(), r.Number, r.Era, int64(r.Ends),
			r.Committed, r.Events, r.Data)
		return err
	})
	if err != nil {
		return fmt.Errorf("spool %d events: %w", r.Events, err)
	}
	return nil
}

// NextSpooled is the first row behind the number; ok is false when there is none. Fenced.
func (s *Queue) NextSpooled(ctx context.Context, after int64) (r record.Spooled, ok bool, err error) {
	err = s.db.Tx(ctx, db.Reading, func(tx pgx.Tx) error {
		var ends int64
		err := tx.QueryRow(ctx, s.db.Names.SQL(`SELECT number, era, ends, committed_at, events, data FROM {spool}
WHERE source = $1 AND number > $2 ORDER BY number LIMIT 1`), s.db.Source(), after).
			Scan(&r.Number, &r.Era, &ends, &r.Committed, &r.Events, &r.Data)
		r.Ends, ok = outbox.LSN(ends), err == nil
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		return s.db.StillOwned(ctx, tx)
	})
	if err != nil {
		return r, false, fmt.Errorf("read the spool: %w", err)
	}
	return r, ok, nil
}

// DeleteSpooled deletes the rows of these numbers, in one transaction: a part of what they hold could not be read
// without the rest. It does not wait for the disk: what is forgotten is read and looked up once more. With a first
// number it reads nothing of the rows deleted before, which stay in table and index while a transaction older than
// their deletion is open. Fenced.
func (s *Queue) DeleteSpooled(ctx context.Context, first, last int64) error {
	err := s.db.Fenced(ctx, db.Noting.For(int(last-first+1)*spoolRow), func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.db.Names.SQL(`DELETE FROM {spool} WHERE source = $1 AND number BETWEEN $2 AND $3`),
			s.db.Source(), first, last)
		return err
	})
	if err != nil {
		return fmt.Errorf("delete what is sent of the spool: %w", err)
	}
	return nil
}
