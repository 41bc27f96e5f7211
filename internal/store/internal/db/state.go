package db

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// SelectState reads the state of a slot, for ScanState.
const SelectState = `SELECT t.source, s.table_oid, t.phase, t.dirty, t.confirmed::text, t.system_id, t.timeline,
 e.epoch, t.catch_up_ready, t.era, t.baseline_at IS NOT NULL, t.updated_at,
 coalesce((to_jsonb(t) ->> 'catch_up_late')::boolean, false), coalesce(to_jsonb(e) ->> 'taken_lsn', '0/0'),
 ARRAY(SELECT jsonb_array_elements_text(coalesce(to_jsonb(s) -> 'former_systems', '[]'))),
 coalesce(to_jsonb(t) ->> 'lanes', ''), t.swept_at IS NOT NULL
FROM {state} t JOIN {source} s USING (source) JOIN {epoch} e ON e.slot = s.slot WHERE t.slot = $1`

// ScanState scans a row of SelectState.
func ScanState(row pgx.Row) (*record.State, error) {
	var st record.State
	var confirmed, taken string
	err := row.Scan(&st.Source, &st.TableOID, &st.Phase, &st.Dirty, &confirmed, &st.SystemID, &st.Timeline, &st.Epoch,
		&st.CatchUpReady, &st.Era, &st.Baseline, &st.UpdatedAt, &st.CatchUpLate, &taken, &st.FormerSystems, &st.Lanes,
		&st.Swept)
	if err != nil {
		return nil, err
	}
	if st.TakenLSN, err = outbox.ParseLSN(taken); err != nil {
		return nil, err
	}
	st.Confirmed, err = outbox.ParseLSN(confirmed)
	return &st, err
}

// registered is Of for the first of the names, schema.table without quotes, that is registered, if one is. An outbox
// whose table is gone has the shape of the others.
func (s *DB) registered(ctx context.Context, names ...string) (d *DB, is bool, err error) {
	var name string
	var source int32
	var oid uint32
	err = s.One(ctx, Reading, func(row pgx.Row) error { return row.Scan(&name, &source, &oid) },
		s.Names.SQL(`SELECT s.table_name, s.source, s.table_oid FROM {source} s JOIN {state} t
 ON t.slot = s.slot || ':' || s.source WHERE s.slot = $1 AND s.table_name = ANY ($2::text[])
ORDER BY array_position($2::text[], s.table_name), s.created_at DESC LIMIT 1`), s.Config.Slot, names)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("look for the outbox %s: %w", names[0], err)
	}
	d = s.Of(s.parts(name))
	d.SetSource(source, oid)
	if _, err := d.Table(ctx); err != nil {
		if !errors.Is(err, record.ErrNoOutbox) {
			return nil, false, err
		}
		if _, _, err := s.TableAndSource(ctx); err != nil {
			return nil, false, err
		}
		d.table.Store(s.TableSeen())
	}
	return d, true, nil
}

// parts are schema and table of an outbox by the name under which it is registered, which has no quotes: the tables of
// a pattern share their name. Of another name the part before the first dot is the schema.
func (s *DB) parts(name string) (schema, table string) {
	if schema, is := strings.CutSuffix(name, "."+s.Names.OutboxTable); is {
		return schema, s.Names.OutboxTable
	}
	schema, table, _ = strings.Cut(name, ".")
	return schema, table
}

// Registered lists the outboxes that have a state of their own, besides the slot's, whether their tables are there or
// not.
func (s *DB) Registered(ctx context.Context) (list []record.Named, err error) {
	err = s.Tx(ctx, Reading, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.Names.SQL(`SELECT s.table_oid, s.table_name, s.source
FROM {source} s JOIN {state} t ON t.slot = s.slot || ':' || s.source WHERE s.slot = $1 ORDER BY s.source`),
			s.Config.Slot)
		if err == nil {
			list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (n record.Named, err error) {
				var name string
				err = row.Scan(&n.OID, &name, &n.Source)
				n.Schema, n.Name = s.parts(name)
				n.Published = true
				return n, err
			})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the outboxes of slot %q: %w", s.Config.Slot, err)
	}
	return list, nil
}

// States are those of the outboxes that are registered, by their numbers.
func (s *DB) States(ctx context.Context) (map[int32]*record.State, error) {
	all := map[int32]*record.State{}
	err := s.Tx(ctx, Reading, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.Names.SQL(strings.Replace(SelectState, "t.slot = $1",
			"s.slot = $1 AND t.slot = s.slot || ':' || s.source", 1)), s.Config.Slot)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			st, err := ScanState(rows)
			if err != nil {
				return err
			}
			all[st.Source] = st
		}
		return rows.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("read the states of the outboxes: %w", err)
	}
	return all, nil
}

// gather covers the outboxes that are registered, for a process that does not relay. What their tables have in common
// is read of the first one that is there.
func (s *DB) gather(ctx context.Context) error {
	list, err := s.Registered(ctx)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return fmt.Errorf("%w: slot %q has published from none that fits %s", record.ErrNoOutbox, s.Config.Slot,
			s.Config.Table)
	}
	members := make([]*DB, len(list))
	for i, n := range list {
		members[i] = s.Of(n.Schema, n.Name)
		members[i].SetSource(n.Source, n.OID)
		if s.TableSeen() != nil {
			continue
		}
		switch o, err := members[i].Table(ctx); {
		case err == nil:
			s.table.CompareAndSwap(nil, o)
		case !errors.Is(err, record.ErrNoOutbox):
			return err
		}
	}
	if s.TableSeen() == nil {
		return fmt.Errorf("%w: none of the %d tables of slot %q is there", record.ErrNoOutbox, len(list), s.Config.Slot)
	}
	s.Cover(members)
	return nil
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
