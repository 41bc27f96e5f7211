package lease

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
)

// settled notes, before the phase changes, that a relay has streamed: what is not recorded from then on is to be
// published, whatever outbox.catch_up says of what the table held at the first start.
const settled = `baseline_at = CASE WHEN phase = 'stream' THEN coalesce(baseline_at, now()) ELSE baseline_at END`

// ofSlot is a condition on the states of the slot $1: its own, and those of its outboxes if there are several.
const ofSlot = `(slot = $1 OR starts_with(slot, $1::text || ':'))`

// BeginCatchUp puts a slot back into phase catch_up, because it was lost, or because the stream has left rows out: the
// unrecorded rows come from the table first. It must be committed before a new slot exists, and before the stream is
// read again. late marks the events: the stream may have delivered later ones of their keys. Of a catch-up that has
// begun they stay so.
func (s *Lease) BeginCatchUp(ctx context.Context, late bool) error {
	err := s.db.Tx(ctx, db.Writing, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.db.Names.SQL(`UPDATE {state} SET catch_up_late = $2 OR catch_up_late, `+settled+`,
 phase = 'catch_up',
 catch_up_ready = false, dirty = true, updated_at = now() WHERE `+ofSlot), s.db.Config.Slot, late)
		return err
	})
	if err != nil {
		return fmt.Errorf("begin a catch-up: %w", err)
	}
	return nil
}

// BeginCatchUpSince is BeginCatchUp unless a relay has taken over since the epoch. It says whether none has. A
// take-over waits for it.
func (s *Lease) BeginCatchUpSince(ctx context.Context, epoch int64, late bool) (begun bool, err error) {
	err = s.db.Tx(ctx, db.Writing, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx,
			s.db.Names.SQL(`WITH since AS MATERIALIZED (SELECT 1 FROM {epoch} WHERE slot = $1 AND epoch = $2 FOR SHARE)
UPDATE {state} SET catch_up_late = $3 OR catch_up_late, `+settled+`,
 phase = 'catch_up', catch_up_ready = false, dirty = true,
 updated_at = now()
WHERE `+ofSlot+` AND EXISTS (SELECT FROM since)`), s.db.Config.Slot, epoch, late)
		begun = tag.RowsAffected() > 0
		return err
	})
	if err != nil {
		return false, fmt.Errorf("begin a catch-up: %w", err)
	}
	return begun, nil
}

// BeginCatchUpOfLost is BeginCatchUp for a slot that is gone or invalidated, if it still is: another relay may have
// made a new one since that was seen, and be through with its catch-up. It says whether it was.
func (s *Lease) BeginCatchUpOfLost(ctx context.Context) (begun bool, err error) {
	err = s.db.Tx(ctx, db.Writing, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx,
			s.db.Names.SQL(`UPDATE {state} SET `+settled+`, phase = 'catch_up',
 catch_up_ready = false, dirty = true, updated_at = now()
WHERE `+ofSlot+` AND NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1
 AND wal_status IS DISTINCT FROM 'lost')`), s.db.Config.Slot)
		begun = tag.RowsAffected() > 0
		return err
	})
	if err != nil {
		return false, fmt.Errorf("begin a catch-up: %w", err)
	}
	return begun, nil
}

// NoteLeftOut notes for one of several outboxes that rows of it are not taken from the stream: see CatchUpOf. It is to
// be committed before the first of them is left out. Of an outbox that is to be caught up with it changes nothing but
// that the events are marked as late.
func (s *Lease) NoteLeftOut(ctx context.Context) error {
	err := s.db.Tx(ctx, db.Writing, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.db.Names.SQL(`UPDATE {state} SET catch_up_late = true WHERE slot = $1
 AND NOT catch_up_late`), s.db.StateKey())
		return err
	})
	if err != nil {
		return fmt.Errorf("note that rows are left out: %w", err)
	}
	return nil
}

// NoteBaseline notes for the slot as a whole that what its outboxes held at its first start counts as published, once
// that is set for each of them.
func (s *Lease) NoteBaseline(ctx context.Context) error {
	err := s.db.Tx(ctx, db.Writing, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.db.Names.SQL(`UPDATE {state} SET baseline_at = now()
WHERE slot = $1 AND baseline_at IS NULL`), s.db.Config.Slot)
		return err
	})
	if err != nil {
		return fmt.Errorf("note the baseline: %w", err)
	}
	return nil
}

// CatchUpOf puts some of several outboxes, by their numbers, back into phase catch_up, and with them the slot, whose
// lists are not complete by that. Fenced.
func (s *Lease) CatchUpOf(ctx context.Context, sources []int32) error {
	err := s.db.Fenced(ctx, db.Writing, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.db.Names.SQL(`UPDATE {state} SET `+settled+`, phase = 'catch_up',
 catch_up_ready = false, dirty = true, updated_at = now()
WHERE slot = $1 OR slot IN (SELECT $1::text || ':' || n FROM unnest($2::integer[]) n)`), s.db.Config.Slot, sources)
		return err
	})
	if err != nil {
		return fmt.Errorf("begin a catch-up of %d outboxes: %w", len(sources), err)
	}
	return nil
}
