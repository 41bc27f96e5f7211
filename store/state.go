package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/outbox"
)

// The phases of a relay.
const (
	CatchUp = "catch_up" // rows of the table first, then the stream
	Stream  = "stream"
)

// State is what is known of a slot across restarts.
type State struct {
	Source       int32      // the number of (slot, table) in every key
	TableOID     uint32     // the outbox table that Source stands for
	Phase        string     // CatchUp or Stream
	Dirty        bool       // the last session has not ended by CleanStop
	Confirmed    outbox.LSN // as last saved; the slot may be ahead of it after an unclean stop
	SystemID     string
	Timeline     int32
	Epoch        int64      // as last taken over by anybody; 0 = never
	TakenLSN     outbox.LSN // where the WAL stood at that moment; 0: not known
	CatchUpReady bool       // SnapshotCatchUp is done, CatchUpRows says what is left
	CatchUpLate  bool       // what the present catch-up publishes is marked as late
	Era          int64      // the epoch of the last SnapshotCatchUp, 0 when there was none; of positions, see outbox.Position
	Baseline     bool       // SetBaseline is done
	UpdatedAt    time.Time  // of the last progress
}

const selectState = `SELECT t.source, s.table_oid, t.phase, t.dirty, t.confirmed::text, t.system_id, t.timeline, e.epoch,
 t.catch_up_ready, t.era, t.baseline_at IS NOT NULL, t.updated_at,
 coalesce((to_jsonb(t) ->> 'catch_up_late')::boolean, false), coalesce(to_jsonb(e) ->> 'taken_lsn', '0/0')
FROM {state} t JOIN {source} s USING (source) JOIN {epoch} e ON e.slot = t.slot WHERE t.slot = $1`

func scanState(row pgx.Row) (*State, error) {
	var st State
	var confirmed, taken string
	err := row.Scan(&st.Source, &st.TableOID, &st.Phase, &st.Dirty, &confirmed, &st.SystemID, &st.Timeline, &st.Epoch,
		&st.CatchUpReady, &st.Era, &st.Baseline, &st.UpdatedAt, &st.CatchUpLate, &taken)
	if err != nil {
		return nil, err
	}
	if st.TakenLSN, err = outbox.ParseLSN(taken); err != nil {
		return nil, err
	}
	st.Confirmed, err = outbox.ParseLSN(confirmed)
	return &st, err
}

// State is nil when the slot has none yet.
func (s *Store) State(ctx context.Context) (*State, error) {
	var st *State
	err := s.one(ctx, reading, func(row pgx.Row) (err error) {
		st, err = scanState(row)
		return err
	}, s.names.sql(selectState), s.config.Slot)
	if err == pgx.ErrNoRows {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the relay's state: %w", err)
	}
	s.source.Store(st.Source)
	return st, nil
}

// Register makes the rows of a first start: the source's number, epoch 0, and the state, dirty and with the phase given.
// It must be committed before the slot is created. Where the slot has a state for this table already, that state stays as
// it is and is returned; for another table (one made anew) it begins again.
func (s *Store) Register(ctx context.Context, systemID string, timeline int32, tableOID uint32, phase string) (*State, error) {
	var st *State
	err := s.tx(ctx, writing, func(tx pgx.Tx) error {
		var source int32
		// DO UPDATE, so that RETURNING gives the number also when another relay has just made it.
		err := tx.QueryRow(ctx, s.names.sql(`INSERT INTO {source} (slot, table_oid, table_name) VALUES ($1, $2::oid, $3)
ON CONFLICT (slot, table_oid) DO UPDATE SET table_name = excluded.table_name RETURNING source`),
			s.config.Slot, tableOID, s.names.outboxSchema+"."+s.names.outboxTable).Scan(&source)
		if err != nil {
			return err
		}
		if _, err = tx.Exec(ctx, s.names.sql(`INSERT INTO {epoch} (slot, epoch) VALUES ($1, 0) ON CONFLICT DO NOTHING`), s.config.Slot); err != nil {
			return err
		}
		if _, err = tx.Exec(ctx, s.names.sql(`INSERT INTO {state} AS t (slot, source, phase, system_id, timeline) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (slot) DO UPDATE SET source = excluded.source, phase = excluded.phase, dirty = true, confirmed = '0/0',
 system_id = excluded.system_id, timeline = excluded.timeline, catch_up_ready = false, catch_up_late = false, baseline_at = NULL,
 breaker_at = NULL, breaker_said = NULL, updated_at = now()
WHERE t.source <> excluded.source`), s.config.Slot, source, phase, systemID, timeline); err != nil {
			return err
		}
		st, err = scanState(tx.QueryRow(ctx, s.names.sql(selectState), s.config.Slot))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("register slot %q: %w", s.config.Slot, err)
	}
	s.source.Store(st.Source)
	return st, nil
}

// SaveProgress records the confirmed LSN. It does not wait for the disk: a state row that is behind the slot is normal
// after an unclean stop. After a CleanStop it changes nothing: a note that was on its way when the stop was recorded, and
// that nobody waits for any more, would let the slot look as if somebody else had moved it. The caller limits the rate to one
// per second. ErrFenced after a takeover by another.
func (s *Store) SaveProgress(ctx context.Context, confirmed outbox.LSN) error {
	l := writing
	l.commit = relaxed
	return s.saveState(ctx, l, "save progress", `confirmed = CASE WHEN dirty THEN $3::pg_lsn ELSE confirmed END`, confirmed)
}

// CleanStop records that everything up to the LSN is confirmed and nothing else was sent. ErrFenced after a takeover by
// another.
func (s *Store) CleanStop(ctx context.Context, confirmed outbox.LSN) error {
	return s.saveState(ctx, writing, "record the clean stop", `confirmed = $3::pg_lsn, dirty = false`, confirmed)
}

// saveState is one statement, so that the fence costs no round trip: where the epoch's row changes while the statement
// waits for it, Postgres checks the row again as it then is.
func (s *Store) saveState(ctx context.Context, l limits, what, set string, confirmed outbox.LSN) error {
	var written int
	err := s.one(ctx, l, func(row pgx.Row) error { return row.Scan(&written) },
		s.names.sql(`WITH fence AS MATERIALIZED (SELECT 1 FROM {epoch} WHERE slot = $1 AND epoch = $2 FOR SHARE)
UPDATE {state} SET `+set+`, updated_at = now() WHERE slot = $1 AND EXISTS (SELECT 1 FROM fence) RETURNING 1`),
		s.config.Slot, s.epoch.Load(), confirmed.String())
	if err == pgx.ErrNoRows {
		err = ErrFenced
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
