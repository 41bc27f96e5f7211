package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// terminateWait bounds the wait for one session of an older epoch to end.
const terminateWait = time.Second

// takingOver waits for the fenced writes of the former owner as long as they may last.
var takingOver = db.Limits{Lock: db.Writing.Statement, Statement: db.Writing.Statement + terminateWait,
	Commit: db.Durable}

// epochsMissed is by how much the epoch rises at a server that was promoted: more take-overs than it can have missed,
// so that no relay of the time before has the epoch of one after. Sinks have room for millions of epochs.
const epochsMissed = 1000

// TakeOver makes this relay the owner of the slot that its replication connection holds: it ends the SQL sessions of
// older epochs of this slot, raises the epoch (by more than one at a server that was promoted since), names the pool's
// connections after it, sets dirty, and notes the server's timeline. walsenderPID is the backend of our replication
// connection; [record.ErrLeaseLost] when the slot is not held by it. listed says whether there is a list of rows to
// catch up with for this slot: one that was made for a slot before it, which was taken over when the WAL had not come
// to where this one begins, is void, since it lacks what was committed in between.
//
// The order matters. The sessions end first, so that none of them can be in the middle of a fenced write; the epoch's
// row then waits for those that are, and any later one finds the epoch moved on.
func (s *Lease) TakeOver(ctx context.Context, walsenderPID uint32,
	timeline int32) (epoch int64, listed bool, err error) {
	if err := s.terminateOlder(ctx, walsenderPID); err != nil {
		return 0, false, fmt.Errorf("take over slot %q: %w", s.db.Config.Slot, err)
	}
	err = s.db.Tx(ctx, takingOver, func(tx pgx.Tx) error {
		// Fenced writes that are under way hold the row. Only after them is the lease looked at once more.
		// A position that is not known is of a version that did not note it.
		var other bool
		err := tx.QueryRow(ctx,
			s.db.Names.SQL(
				`SELECT coalesce(taken_lsn < (SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = $1), false)
FROM {epoch} WHERE slot = $1 FOR UPDATE`), s.db.Config.Slot).Scan(&other)
		if errors.Is(err, pgx.ErrNoRows) {
			return errNoState
		}
		if err != nil {
			return err
		}
		err = tx.QueryRow(ctx,
			s.db.Names.SQL(`UPDATE {epoch} SET taken_at = now(), taken_lsn = pg_current_wal_insert_lsn(),
 epoch = epoch + CASE (SELECT t.timeline FROM {state} t WHERE t.slot = $1) WHEN $3 THEN 1 ELSE $4 END
WHERE slot = $1 AND EXISTS (SELECT 1 FROM pg_replication_slots WHERE slot_name = $1 AND active_pid = $2)
 RETURNING epoch`),
			s.db.Config.Slot, int64(walsenderPID), timeline, epochsMissed).Scan(&epoch)
		if errors.Is(err, pgx.ErrNoRows) {
			return record.ErrLeaseLost
		}
		if err != nil {
			return err
		}
		err = tx.QueryRow(ctx,
			s.db.Names.SQL(
				`UPDATE {state} SET dirty = true, timeline = $2, catch_up_ready = catch_up_ready AND NOT $3, updated_at = now()
WHERE slot = $1 RETURNING catch_up_ready`), s.db.Config.Slot, timeline, other).Scan(&listed)
		if errors.Is(err, pgx.ErrNoRows) {
			return errNoState
		}
		if err == nil && other { // the lists of its outboxes, if there are several, are void as its own is
			_, err = tx.Exec(ctx, s.db.Names.SQL(`UPDATE {state} SET catch_up_ready = false WHERE catch_up_ready AND `+ofSlot),
				s.db.Config.Slot)
		}
		return err
	})
	if err != nil {
		return 0, false, fmt.Errorf("take over slot %q: %w", s.db.Config.Slot, err)
	}
	s.db.TookOver(epoch)
	return epoch, listed, nil
}

var errNoState = errors.New("the slot has no state: Register comes before TakeOver")

// terminateOlder ends the sessions whose application_name is that of an earlier epoch of this slot. Epoch 0 is a relay
// that stands by, or a command: it owns nothing.
func (s *Lease) terminateOlder(ctx context.Context, walsenderPID uint32) error {
	return s.db.Tx(ctx, takingOver, func(tx pgx.Tx) error {
		var held bool
		err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_replication_slots WHERE slot_name = $1 AND active_pid = $2)`,
			s.db.Config.Slot, int64(walsenderPID)).Scan(&held)
		if err != nil {
			return err
		}
		if !held {
			return record.ErrLeaseLost
		}
		_, err = tx.Exec(ctx, s.db.Names.SQL(`SELECT pg_terminate_backend(a.pid, $3) FROM pg_stat_activity a
WHERE a.pid <> pg_backend_pid() AND a.usename = current_user AND a.datname = current_database()
 AND a.application_name ~ ('^cdc-relay/[1-9][0-9]{0,17}/' || $2 || '$')
 AND CASE WHEN a.application_name ~ '^cdc-relay/[0-9]{1,18}/' THEN split_part(a.application_name, '/', 2)::bigint END
     <= (SELECT epoch FROM {epoch} WHERE slot = $1)`),
			s.db.Config.Slot, db.SlotHash(s.db.Config.Slot), terminateWait.Milliseconds())
		if err != nil {
			return fmt.Errorf("end sessions of older epochs: %w", err)
		}
		return nil
	})
}
