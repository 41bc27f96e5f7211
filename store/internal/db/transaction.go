package db

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/login"
	"github.com/cdc-relay/cdc-relay/store/internal/record"
)

// Limits are the settings of one transaction. They are given with set_config(…, true), which ends with the transaction,
// so that a pooler never hands them to somebody else. Zero means: none.
type Limits struct {
	Lock, Statement time.Duration
	Commit          commitMode
	Interpreted     bool // do not compile the statement: one that probes indexes looks dear to Postgres and is not
}

// commitMode is what a commit waits for.
type commitMode string

const (
	// Durable is synchronous_commit = on, or remote_apply where the server's default is that.
	Durable commitMode = `CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END`
	// Flushed waits for this server's disk only.
	Flushed commitMode = `'local'`
	// Relaxed does not wait: what it writes may be forgotten by a crash of the server, and must be found again by itself.
	Relaxed commitMode = `'off'`
)

// The usual limits: a read, a write to the relay's own tables, one that may be forgotten, and a read that takes long.
var (
	Reading  = Limits{Lock: 2 * time.Second, Statement: 30 * time.Second, Interpreted: true}
	Writing  = Limits{Lock: 2 * time.Second, Statement: 10 * time.Second, Commit: Durable}
	Noting   = Limits{Lock: 2 * time.Second, Statement: 10 * time.Second, Commit: Relaxed}
	Scanning = Limits{Lock: 2 * time.Second} // over the whole outbox: takes as long as it takes
)

// pinned are the settings that decide how values are printed and read, whatever the database's or the role's
// defaults: the same as in the replication session, so that an event has the same bytes whether the stream or the
// table gave it. A catalog that is asked for types must not quote their names.
const pinned = `set_config('datestyle', 'ISO, YMD', true), set_config('intervalstyle', 'postgres', true),
 set_config('timezone', 'UTC', true), set_config('bytea_output', 'hex', true),
 set_config('extra_float_digits', '1', true),
 set_config('quote_all_identifiers', 'off', true), set_config('standard_conforming_strings', 'on', true),
 set_config('transform_null_equals', 'off', true), set_config('array_nulls', 'on', true)`

// catalogFirst keeps a schema of the role's own from having its types and functions taken for those of the catalog. The
// expressions of the configuration may use what is behind it.
const catalogFirst = `set_config('search_path',
 concat_ws(', ', 'pg_catalog', NULLIF(current_setting('search_path'), '')), true)`

// noTransactionTimeout keeps a transaction_timeout of the role or the database from ending what has limits of its own,
// or takes as long as it takes. It is unknown before PostgreSQL 17; asking costs no look at a table.
const noTransactionTimeout = `CASE WHEN current_setting('transaction_timeout', true) IS NOT NULL
 THEN set_config('transaction_timeout', '0', true) END`

func (l Limits) SQL() string {
	text := fmt.Sprintf("SELECT set_config('lock_timeout', '%d', true), set_config('statement_timeout', '%d', true)",
		l.Lock.Milliseconds(), l.Statement.Milliseconds()) + ", " + noTransactionTimeout + ", " + catalogFirst
	if l.Statement > 0 { // a process that is frozen within a transaction would hold up VACUUM for as long as it is
		text += fmt.Sprintf(", set_config('idle_in_transaction_session_timeout', '%d', true)", l.Statement.Milliseconds())
	}
	if l.Interpreted {
		text += ", set_config('jit', 'off', true)"
	}
	if l.Commit != "" {
		text += ", set_config('synchronous_commit', " + string(l.Commit) + ", true)"
	}
	return text
}

// printing is sql for a transaction whose values go through text.
func (l Limits) printing() string { return l.SQL() + ", " + pinned }

// One runs one statement in one transaction and one round trip, and hands its row to scan.
func (s *DB) One(ctx context.Context, l Limits, scan func(pgx.Row) error, text string, args ...any) error {
	var b pgx.Batch
	b.Queue(l.printing())
	b.Queue(text, args...)
	results := s.Pool.SendBatch(ctx, &b)
	_, err := results.Exec()
	if err == nil {
		err = scan(results.QueryRow())
	}
	// The commit's own error arrives last. Without it a failed commit would look like success.
	if closed := results.Close(); err == nil || err == pgx.ErrNoRows && closed != nil {
		err = closed
	}
	return login.Explain(err, s.Config.Password)
}

// Tx runs several statements in one transaction.
func (s *DB) Tx(ctx context.Context, l Limits, do func(pgx.Tx) error) error {
	// Whatever the default: a fence must see the epoch as it is when the lock is granted.
	err := pgx.BeginTxFunc(ctx, s.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, l.printing()); err != nil {
			return err
		}
		return do(tx)
	})
	return login.Explain(err, s.Config.Password)
}

// Fenced is tx for writes that only the owner of the slot may make: the epoch's row is locked FOR SHARE to the end.
func (s *DB) Fenced(ctx context.Context, l Limits, do func(pgx.Tx) error) error {
	return s.Tx(ctx, l, func(tx pgx.Tx) error {
		if err := s.owns(ctx, tx, `SELECT 1 FROM {epoch} WHERE slot = $1 AND epoch = $2 FOR SHARE`); err != nil {
			return err
		}
		return do(tx)
	})
}

// StillOwned comes behind a read on which the owner will act. It fails with [record.ErrFenced] if another relay has
// taken over by now: whoever passes was the owner when the read saw the tables. It needs no lock: epochs only grow.
func (s *DB) StillOwned(ctx context.Context, tx pgx.Tx) error {
	return s.owns(ctx, tx, `SELECT 1 FROM {epoch} WHERE slot = $1 AND epoch = $2`)
}

// owns asks for the epoch's row by the statement given.
func (s *DB) owns(ctx context.Context, tx pgx.Tx, text string) error {
	var held int
	err := tx.QueryRow(ctx, s.Names.SQL(text), s.Config.Slot, s.epoch.Load()).Scan(&held)
	if err == pgx.ErrNoRows {
		return record.ErrFenced
	}
	return err
}

// Send runs one statement with wire parameters, which must not hold or give times or other text that depends on
// settings, in one transaction and one round trip. Each row of the result, in the formats asked for, is handed to
// each; its bytes are valid only during the call.
func (s *DB) Send(ctx context.Context, l Limits, text string, p *Params, formats []int16,
	each func(row [][]byte) error) error {
	return s.Pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		var b pgconn.Batch
		b.ExecParams(l.SQL(), nil, nil, nil, nil)
		b.ExecParams(text, p.Values, p.OIDs, p.Formats, formats)
		results := c.Conn().PgConn().ExecBatch(ctx, &b)
		var failed error
		for n := 0; results.NextResult(); n++ {
			rows := results.ResultReader()
			for rows.NextRow() {
				if n == 0 || each == nil || failed != nil {
					continue
				}
				failed = each(rows.Values())
			}
			rows.Close() // its error comes again from results.Close
		}
		if err := results.Close(); err != nil {
			return err
		}
		return failed
	})
}

func ExecWire(ctx context.Context, tx pgx.Tx, text string, p *Params) error {
	_, err := tx.Conn().PgConn().ExecParams(ctx, text, p.Values, p.OIDs, p.Formats, nil).Close()
	return err
}

// Explain is Postgres's plan for a statement with its parameters.
func (s *DB) Explain(ctx context.Context, l Limits, text string, p *Params) (plan string, err error) {
	o, err := s.Table(ctx)
	if err != nil {
		return "", err
	}
	err = s.Send(ctx, l, "EXPLAIN "+s.SQL(o, text), p, nil, func(row [][]byte) error {
		plan += string(row[0]) + "\n"
		return nil
	})
	return plan, err
}
