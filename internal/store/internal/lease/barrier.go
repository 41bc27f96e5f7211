package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

const (
	barrierFirstPoll = 5 * time.Millisecond
	barrierMostPoll  = 250 * time.Millisecond
)

// Barrier waits until every transaction that may have written before now is over, in all databases of the server. It
// returns nil when that is so, and after the timeout those that it still waits for, oldest first. It takes one
// transaction number, holds no transaction open while it waits, and polls at 5 ms growing to 250 ms.
func (s *Lease) Barrier(ctx context.Context, timeout time.Duration) ([]record.Blocker, error) {
	var mine string
	err := s.db.One(ctx, db.Writing, func(row pgx.Row) error {
		return row.Scan(&mine)
	}, `SELECT pg_current_xact_id()::text`)
	if err != nil {
		return nil, fmt.Errorf("begin the barrier: %w", err)
	}
	end := time.NewTimer(timeout)
	defer end.Stop()
	for pause := barrierFirstPoll; ; pause = min(2*pause, barrierMostPoll) {
		var passed bool
		err := s.db.One(ctx, db.Reading, func(row pgx.Row) error { return row.Scan(&passed) },
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
const blockersSQL = `SELECT pid, '', coalesce(usename, '')::text, coalesce(datname, '')::text,
 coalesce(application_name, ''), coalesce(state, ''), coalesce(xact_start, now())
FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND age(backend_xid) >= age($1::text::xid8::xid)
 AND pid <> pg_backend_pid()
UNION ALL
SELECT 0, gid, owner::text, database::text, '', 'prepared', prepared FROM pg_prepared_xacts
 WHERE age(transaction) >= age($1::text::xid8::xid)
ORDER BY 7`

func (s *Lease) blockers(ctx context.Context, upTo string) ([]record.Blocker, error) {
	list, err := s.transactions(ctx, blockersSQL, upTo)
	if err != nil {
		return nil, fmt.Errorf("list what blocks the barrier: %w", err)
	}
	if len(list) == 0 { // gone just now, or hidden from this role; the caller may try again either way
		list = []record.Blocker{{}}
	}
	return list, nil
}

const oldTransactionsSQL = `SELECT pid, '', coalesce(usename, '')::text, coalesce(datname, '')::text,
 coalesce(application_name, ''), coalesce(state, ''), xact_start
FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND xact_start <= now() - $1::bigint * interval '1 microsecond'
 AND pid <> pg_backend_pid()
UNION ALL
SELECT 0, gid, owner::text, database::text, '', 'prepared', prepared FROM pg_prepared_xacts
 WHERE prepared <= now() - $1::bigint * interval '1 microsecond'
ORDER BY 7`

// OldTransactions are those of the whole server that have written and have not ended since that long, oldest first.
// As long as one is open, no batch that was journaled after it began is marked, deleted or pruned; a prepared one
// that its coordinator forgot stays permanently, restarts of the server included. Sessions of other roles are among
// them for a role with pg_read_all_stats only.
func (s *Lease) OldTransactions(ctx context.Context, since time.Duration) ([]record.Blocker, error) {
	list, err := s.transactions(ctx, oldTransactionsSQL, since.Microseconds())
	if err != nil {
		return nil, fmt.Errorf("list old transactions: %w", err)
	}
	return list, nil
}

func (s *Lease) transactions(ctx context.Context, query string, arg any) (list []record.Blocker, err error) {
	err = s.db.Tx(ctx, db.Reading, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, query, arg)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[record.Blocker])
		return err
	})
	return list, err
}
