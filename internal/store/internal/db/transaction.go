package db

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// Limits are how one transaction runs. What they set ends with the transaction, so that a pooler never hands it to
// another client. Zero means: none. Without a commit mode the transaction is read-only.
type Limits struct {
	Lock, Statement time.Duration
	Commit          commitMode
	Zone            string // the time zone in which times become timestamps without one; "" = see pinned
	Interpreted     bool   // do not compile the statement: one that probes indexes looks dear to Postgres and is not
	Triggers        bool   // the statement changes the outbox, so it runs the application's triggers; see InRolesPath
}

// commitMode chooses what a commit waits for.
type commitMode string

const (
	// Durable is synchronous_commit = on, or remote_apply where the server's default is that.
	Durable commitMode = `CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END`
	// Flushed waits for this server's disk only.
	Flushed commitMode = `'local'`
	// Relaxed does not wait: what it writes may be forgotten by a crash of the server, and must be found again by itself.
	Relaxed commitMode = `'off'`
)

// The usual limits: a read, a write to the relay's own tables, one that may be forgotten, a read that takes long, and a
// change of tables.
var (
	Reading  = Limits{Lock: 2 * time.Second, Statement: 30 * time.Second, Interpreted: true}
	Writing  = Limits{Lock: 2 * time.Second, Statement: 10 * time.Second, Commit: Durable}
	Noting   = Limits{Lock: 2 * time.Second, Statement: 10 * time.Second, Commit: Relaxed}
	Scanning = Limits{Lock: 2 * time.Second} // over the whole outbox: takes as long as it takes
	// Migrating may have to wait for another migration, or for a lock on the outbox, which the status view needs for an
	// instant.
	Migrating = Limits{Lock: 10 * time.Second, Statement: time.Minute, Commit: Durable}
)

// pinned are the settings that decide how values are printed and read, whatever the database's or the role's
// defaults: the same as in the replication session, so that an event has the same bytes whether the stream or the
// table gave it. A catalog that is asked for types must not quote their names.
const pinned = `set_config('datestyle', 'ISO, YMD', true), set_config('intervalstyle', 'postgres', true),
 set_config('timezone', 'UTC', true), set_config('bytea_output', 'hex', true),
 set_config('extra_float_digits', '1', true),
 set_config('quote_all_identifiers', 'off', true), set_config('standard_conforming_strings', 'on', true),
 set_config('transform_null_equals', 'off', true), set_config('array_nulls', 'on', true)`

// SafePath is the search_path in which every statement of ours is parsed. Whatever the role's own is, a function or an
// operator that another role made with more exact types than the catalog's (which has many of any type or of any number
// of arguments) is not found, and does not run with the rights of ours. Postgres looks for functions and operators in
// the temporary schema never, and for types and tables there last. Tables have their schema in their names.
const SafePath = "SET LOCAL search_path = pg_catalog, pg_temp"

// keepPath notes the role's own settings for InRolesPath. It comes before SafePath, so each function has its schema.
const keepPath = `SELECT
 pg_catalog.set_config('cdc_relay.search_path', pg_catalog.current_setting('search_path'), true),
 pg_catalog.set_config('cdc_relay.row_security', pg_catalog.current_setting('row_security'), true)`

// InRolesPath is a condition that is always true. A statement under Limits.Triggers evaluates it before it changes the
// first row: its names are looked up by then, in SafePath, and the application's triggers and constraints run in the
// search_path that the role has, as they do for any other client.
const InRolesPath = `(SELECT concat(set_config('search_path', current_setting('cdc_relay.search_path'), true),
 set_config('row_security', current_setting('cdc_relay.row_security'), true)) IS NOT NULL)`

// everyRow makes Postgres refuse a statement from which a row security policy would hide rows. It would see fewer rows
// than the stream otherwise, and take what is hidden for published or gone.
const everyRow = `set_config('row_security', 'off', true)`

// noTransactionTimeout keeps a transaction_timeout of the role or the database from ending what has limits of its own,
// or takes as long as it takes. It is unknown before PostgreSQL 17; asking costs no look at a table.
const noTransactionTimeout = `CASE WHEN current_setting('transaction_timeout', true) IS NOT NULL
 THEN set_config('transaction_timeout', '0', true) END`

// begin is the statement that begins the transaction. It leaves nothing to the defaults of the server, the database or
// the role: a fence must see the epoch as it is when the lock is granted (READ COMMITTED), and what a default of read
// only keeps from being recorded is published again.
func (l Limits) begin() string {
	if l.Commit == "" {
		return "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY NOT DEFERRABLE"
	}
	return "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE NOT DEFERRABLE"
}

// slowestByte is the pace that a statement with much to write is given time for, in bytes a second.
const slowestByte = 1 << 20

// For are the limits of a statement that writes so many bytes: a large payload takes its time to be sent, compressed
// and flushed, and would else fail at each attempt.
func (l Limits) For(bytes int) Limits {
	l.Statement += time.Duration(bytes/slowestByte) * time.Second
	return l
}

// settings is the statement that sets the rest; it is parsed in SafePath.
func (l Limits) settings() string {
	text := fmt.Sprintf("SELECT set_config('lock_timeout', '%d', true), set_config('statement_timeout', '%d', true)",
		l.Lock.Milliseconds(), l.Statement.Milliseconds()) + ", " + noTransactionTimeout + ", " + everyRow
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

// opening is the statements that begin a transaction, whose last one is settings and more.
func (l Limits) opening(more ...string) []string {
	list := []string{l.begin()}
	if l.Triggers {
		list = append(list, keepPath)
	}
	settings := append([]string{l.settings()}, more...)
	if l.Zone != "" { // after what pins it for values that are read
		settings = append(settings, "set_config('timezone', "+Literal(l.Zone)+", true)")
	}
	return append(list, SafePath, strings.Join(settings, ", "))
}

// Opening is one text that begins a transaction, for the simple protocol.
func (l Limits) Opening() string { return strings.Join(l.opening(), "; ") + "; " }

// Printing is Opening for a transaction whose values go through text.
func (l Limits) Printing() string { return strings.Join(l.opening(pinned), "; ") + "; " }

// One runs one statement in one transaction and one round trip, and hands its row to scan.
func (s *DB) One(ctx context.Context, l Limits, scan func(pgx.Row) error, text string, args ...any) error {
	err := s.Pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		var b pgx.Batch
		for _, statement := range l.opening(pinned) {
			b.Queue(statement)
		}
		opening := b.Len()
		b.Queue(text, args...)
		b.Queue("COMMIT")
		results := c.SendBatch(ctx, &b)
		var err error
		for range opening {
			if err == nil {
				_, err = results.Exec()
			}
		}
		if err == nil {
			err = scan(results.QueryRow())
		}
		// The commit's own error arrives last. Without it a failed commit would look like success.
		if closed := results.Close(); err == nil || errors.Is(err, pgx.ErrNoRows) && closed != nil {
			err = closed
		}
		rollBack(ctx, c.Conn().PgConn())
		return err
	})
	return s.explain(err)
}

// rollBack ends a transaction that failed, or the pool would close the connection.
func rollBack(ctx context.Context, c *pgconn.PgConn) {
	if !c.IsClosed() && c.TxStatus() != 'I' {
		_ = c.Exec(ctx, "ROLLBACK").Close()
	}
}

// Tx runs several statements in one transaction.
func (s *DB) Tx(ctx context.Context, l Limits, do func(pgx.Tx) error) error {
	return s.explain(InTx(ctx, s.Pool, l, do))
}

// Beginner is a connection or a pool.
type Beginner interface {
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
}

// InTx runs several statements in one transaction of a connection that need not be a Store's.
func InTx(ctx context.Context, on Beginner, l Limits, do func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, on, pgx.TxOptions{BeginQuery: l.Printing()}, do)
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
// taken over by now: a caller that passes owned the slot when the read saw the tables. It needs no lock: epochs only
// grow.
func (s *DB) StillOwned(ctx context.Context, tx pgx.Tx) error {
	return s.owns(ctx, tx, `SELECT 1 FROM {epoch} WHERE slot = $1 AND epoch = $2`)
}

// owns asks for the epoch's row by the statement given.
func (s *DB) owns(ctx context.Context, tx pgx.Tx, text string) error {
	var held int
	err := tx.QueryRow(ctx, s.Names.SQL(text), s.Config.Slot, s.Epoch()).Scan(&held)
	if errors.Is(err, pgx.ErrNoRows) {
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
		opening := l.opening()
		for _, statement := range opening {
			b.ExecParams(statement, nil, nil, nil, nil)
		}
		b.ExecParams(text, p.Values, p.OIDs, p.Formats, formats)
		b.ExecParams("COMMIT", nil, nil, nil, nil)
		conn := c.Conn().PgConn()
		results := conn.ExecBatch(ctx, &b)
		var failed error
		for n := 0; results.NextResult(); n++ {
			rows := results.ResultReader()
			for rows.NextRow() {
				if n != len(opening) || each == nil || failed != nil {
					continue
				}
				failed = each(rows.Values())
			}
			_, _ = rows.Close() // its error comes again from results.Close
		}
		err := results.Close()
		rollBack(ctx, conn)
		if err != nil {
			return s.explain(err)
		}
		return failed
	})
}

// ExecWire runs a statement with parameters in wire form.
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
