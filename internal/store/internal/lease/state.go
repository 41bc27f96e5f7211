package lease

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// Register makes the rows of a first start: the source's number, epoch 0, and the state, dirty and with the phase
// given. It must be committed before the slot is created. Where the slot has a state for this table already, that state
// stays as it is and is returned; for another table (one made again) it begins again. For one of several outboxes the
// state is its own, besides the slot's; its phase may be AsSlot if the slot has one.
func (s *Lease) Register(ctx context.Context, systemID string, timeline int32, tableOID uint32,
	phase string) (*record.State, error) {
	var st *record.State
	err := s.db.Tx(ctx, db.Writing, func(tx pgx.Tx) error {
		var source int32
		// DO UPDATE, so that RETURNING gives the number also when another relay has just made it.
		err := tx.QueryRow(ctx, s.db.Names.SQL(`INSERT INTO {source} (slot, table_oid, table_name) VALUES ($1, $2::oid, $3)
ON CONFLICT (slot, table_oid) DO UPDATE SET table_name = excluded.table_name RETURNING source`),
			s.db.Config.Slot, tableOID, s.db.Names.OutboxSchema+"."+s.db.Names.OutboxTable).Scan(&source)
		if err != nil {
			return err
		}
		if _, err = tx.Exec(ctx, s.db.Names.SQL(`INSERT INTO {epoch} (slot, epoch) VALUES ($1, 0) ON CONFLICT DO NOTHING`),
			s.db.Config.Slot); err != nil {
			return err
		}
		if phase == record.AsSlot {
			// The lists are made, and the phase ends, before or after this.
			err := tx.QueryRow(ctx, s.db.Names.SQL(`SELECT CASE WHEN phase = 'catch_up' AND NOT catch_up_ready
 THEN $2 ELSE $3 END FROM {state} WHERE slot = $1 FOR SHARE`), s.db.Config.Slot, record.CatchUp, record.Stream).
				Scan(&phase)
			if err != nil {
				return err
			}
		}
		key := s.db.KeyOf(source)
		if _, err = tx.Exec(ctx,
			s.db.Names.SQL(`INSERT INTO {state} AS t (slot, source, phase, system_id, timeline, lanes)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (slot) DO UPDATE SET source = excluded.source, phase = excluded.phase, dirty = true, confirmed = '0/0',
 system_id = excluded.system_id, timeline = excluded.timeline, catch_up_ready = false, catch_up_late = false,
 baseline_at = NULL, breaker_at = NULL, breaker_said = NULL, lanes = excluded.lanes, updated_at = now()
WHERE t.source <> excluded.source`), key, source, phase, systemID, timeline,
			s.db.Config.Lanes); err != nil {
			return err
		}
		st, err = db.ScanState(tx.QueryRow(ctx, s.db.Names.SQL(db.SelectState), key))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("register slot %q: %w", s.db.Config.Slot, err)
	}
	s.db.SetSource(st.Source, st.TableOID)
	return st, nil
}

// Registered lists the outboxes that have a state of their own, besides the slot's, whether their tables are there or
// not.
func (s *Lease) Registered(ctx context.Context) (list []record.Named, err error) {
	return s.db.Registered(ctx)
}

// States are those of the outboxes that are registered, by their numbers.
func (s *Lease) States(ctx context.Context) (map[int32]*record.State, error) { return s.db.States(ctx) }

// SaveProgress records the confirmed LSN. It does not wait for the disk: a state row that is behind the slot is normal
// after an unclean stop. After a CleanStop it changes nothing: a note that was on its way when the stop was recorded,
// and that no one waits for any more, would let the slot look as if someone else had moved it. The caller limits the
// rate to one per second, and does not call it before the topics were read back, since it also notes Config.Lanes: what
// records are in the topics has the lanes of these templates from now on. ErrFenced after a takeover by another.
func (s *Lease) SaveProgress(ctx context.Context, confirmed outbox.LSN) error {
	return s.saveState(ctx, db.Noting, "save progress", `confirmed = CASE WHEN dirty THEN $3::pg_lsn ELSE confirmed END`,
		confirmed)
}

// CleanStop records that everything up to the LSN is confirmed and nothing else was sent. ErrFenced after a takeover by
// another.
func (s *Lease) CleanStop(ctx context.Context, confirmed outbox.LSN) error {
	return s.saveState(ctx, db.Writing, "record the clean stop", `confirmed = $3::pg_lsn, dirty = false`, confirmed)
}

// saveState is one statement, so that the fence costs no round trip: where the epoch's row changes while the statement
// waits for it, Postgres checks the row again as it then is.
func (s *Lease) saveState(ctx context.Context, l db.Limits, what, set string, confirmed outbox.LSN) error {
	var written int
	err := s.db.One(ctx, l, func(row pgx.Row) error { return row.Scan(&written) },
		s.db.Names.SQL(`WITH fence AS MATERIALIZED (SELECT 1 FROM {epoch} WHERE slot = $1 AND epoch = $2 FOR SHARE)
UPDATE {state} SET `+set+`, lanes = $4, updated_at = now()
WHERE slot = $1 AND EXISTS (SELECT 1 FROM fence) RETURNING 1`),
		s.db.Config.Slot, s.db.Epoch(), confirmed.String(), s.db.Config.Lanes)
	if errors.Is(err, pgx.ErrNoRows) {
		err = record.ErrFenced
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// State is nil when the slot has none yet.
func (s *Lease) State(ctx context.Context) (*record.State, error) { return s.db.State(ctx) }
