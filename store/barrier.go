package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	barrierFirstPoll = 5 * time.Millisecond
	barrierMostPoll  = 250 * time.Millisecond
)

// Blocker is a transaction that has not ended: a session's or a prepared one. What it runs is not told, it may hold data.
type Blocker struct {
	PID         int32  // 0 = a prepared transaction, or a session that this role may not see (pg_read_all_stats shows it)
	Prepared    string // the prepared transaction's name: end it by COMMIT PREPARED or ROLLBACK PREPARED
	User        string
	Database    string
	Application string
	State       string // such as "idle in transaction"
	Since       time.Time
}

// String says who it is, and how to end it.
func (b Blocker) String() string {
	switch {
	case b.Prepared != "":
		return fmt.Sprintf("prepared transaction %q of %s in database %s, since %s: COMMIT PREPARED or ROLLBACK PREPARED it",
			b.Prepared, b.User, b.Database, b.Since.Format(time.RFC3339))
	case b.PID == 0:
		return "a transaction of another role: grant pg_read_all_stats to this role to see whose"
	}
	return fmt.Sprintf("pid %d (%s, %s) of %s in database %s, transaction since %s: SELECT pg_terminate_backend(%d) ends it",
		b.PID, b.Application, b.State, b.User, b.Database, b.Since.Format(time.RFC3339), b.PID)
}

// Barrier waits until every transaction that may have written before now is over, in all databases of the server. It
// returns nil when that is so, and after the timeout those that it still waits for, oldest first. It takes one
// transaction number, holds no transaction open while it waits, and polls at 5 ms growing to 250 ms.
func (s *Store) Barrier(ctx context.Context, timeout time.Duration) ([]Blocker, error) {
	var mine string
	err := s.one(ctx, writing, func(row pgx.Row) error { return row.Scan(&mine) }, `SELECT pg_current_xact_id()::text`)
	if err != nil {
		return nil, fmt.Errorf("begin the barrier: %w", err)
	}
	end := time.NewTimer(timeout)
	defer end.Stop()
	for pause := barrierFirstPoll; ; pause = min(2*pause, barrierMostPoll) {
		var passed bool
		err := s.one(ctx, reading, func(row pgx.Row) error { return row.Scan(&passed) },
			`SELECT pg_snapshot_xmin(pg_current_snapshot()) > $1::text::xid8`, mine)
		if err != nil {
			return nil, fmt.Errorf("wait at the barrier: %w", err)
		}
		if passed {
			return nil, nil
		}
		poll := time.NewTimer(pause)
		select {
		case <-poll.C:
		case <-end.C:
			poll.Stop()
			return s.blockers(ctx, mine)
		case <-ctx.Done():
			poll.Stop()
			return nil, fmt.Errorf("wait at the barrier: %w", context.Cause(ctx))
		}
	}
}

// blockers are the transactions up to the number. pg_stat_activity shows 32 bits of a transaction's number and nothing
// of other roles' sessions; age() of both numbers compares them.
const blockersSQL = `SELECT pid, '', coalesce(usename, '')::text, coalesce(datname, '')::text, coalesce(application_name, ''),
 coalesce(state, ''), coalesce(xact_start, now())
FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND age(backend_xid) >= age($1::text::xid8::xid) AND pid <> pg_backend_pid()
UNION ALL
SELECT 0, gid, owner::text, database::text, '', 'prepared', prepared FROM pg_prepared_xacts WHERE age(transaction) >= age($1::text::xid8::xid)
ORDER BY 7`

func (s *Store) blockers(ctx context.Context, upTo string) ([]Blocker, error) {
	var list []Blocker
	err := s.tx(ctx, reading, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, blockersSQL, upTo)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Blocker])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("name what blocks the barrier: %w", err)
	}
	if len(list) == 0 { // gone just now, or hidden from this role; the caller may try again either way
		list = []Blocker{{}}
	}
	return list, nil
}

// ErrBarrier is a ready-made error for a barrier that was not passed.
func ErrBarrier(blockers []Blocker) error {
	if len(blockers) == 0 {
		return nil
	}
	list := make([]error, 0, len(blockers))
	for _, b := range blockers {
		list = append(list, errors.New(b.String()))
	}
	return fmt.Errorf("transactions that began before the slot are still open: %w", errors.Join(list...))
}
