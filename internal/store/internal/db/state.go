package db

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// SelectState reads the state of a slot, for ScanState.
const SelectState = `SELECT t.source, s.table_oid, t.phase, t.dirty, t.confirmed::text, t.system_id, t.timeline,
 e.epoch, t.catch_up_ready, t.era, t.baseline_at IS NOT NULL, t.updated_at,
 coalesce((to_jsonb(t) ->> 'catch_up_late')::boolean, false), coalesce(to_jsonb(e) ->> 'taken_lsn', '0/0'),
 ARRAY(SELECT jsonb_array_elements_text(coalesce(to_jsonb(s) -> 'former_systems', '[]'))),
 coalesce(to_jsonb(t) ->> 'lanes', '')
FROM {state} t JOIN {source} s USING (source) JOIN {epoch} e ON e.slot = s.slot WHERE t.slot = $1`

// ScanState scans a row of SelectState.
func ScanState(row pgx.Row) (*record.State, error) {
	var st record.State
	var confirmed, taken string
	err := row.Scan(&st.Source, &st.TableOID, &st.Phase, &st.Dirty, &confirmed, &st.SystemID, &st.Timeline, &st.Epoch,
		&st.CatchUpReady, &st.Era, &st.Baseline, &st.UpdatedAt, &st.CatchUpLate, &taken, &st.FormerSystems, &st.Lanes)
	if err != nil {
		return nil, err
	}
	if st.TakenLSN, err = outbox.ParseLSN(taken); err != nil {
		return nil, err
	}
	st.Confirmed, err = outbox.ParseLSN(confirmed)
	return &st, err
}

// Named is Of for an outbox that is registered.
func (s *DB) Named(ctx context.Context, schema, table string) (*DB, error) {
	d := s.Of(schema, table)
	var source int32
	var oid uint32
	err := s.One(ctx, Reading, func(row pgx.Row) error { return row.Scan(&source, &oid) },
		s.Names.SQL(`SELECT s.source, s.table_oid FROM {source} s JOIN {state} t ON t.slot = s.slot || ':' || s.source
WHERE s.slot = $1 AND s.table_name = $2 ORDER BY s.created_at DESC LIMIT 1`), s.Config.Slot, schema+"."+table)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, fmt.Errorf("%w: slot %q has none by the name of %s.%s", record.ErrNoOutbox, s.Config.Slot, schema, table)
	case err != nil:
		return nil, fmt.Errorf("look for the outbox %s.%s: %w", schema, table, err)
	}
	d.SetSource(source, oid)
	return d, nil
}

// State is nil when the slot has none yet.
func (s *DB) State(ctx context.Context) (*record.State, error) {
	var st *record.State
	err := s.One(ctx, Reading, func(row pgx.Row) (err error) {
		st, err = ScanState(row)
		return err
	}, s.Names.SQL(SelectState), s.StateKey())
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the relay's state: %w", err)
	}
	s.SetSource(st.Source, st.TableOID)
	return st, nil
}
