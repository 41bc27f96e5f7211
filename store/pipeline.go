package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// limits are the settings of one transaction. They are given with set_config(…, true), which ends with the transaction,
// so that a pooler never hands them to somebody else. Zero means: none.
type limits struct {
	lock, statement time.Duration
	commit          commitMode
	interpreted     bool // do not compile the statement: one that probes indexes looks dear to Postgres and is not
}

// commitMode is what a commit waits for.
type commitMode string

const (
	// durable is synchronous_commit = on, or remote_apply where the server's default is that.
	durable commitMode = `CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END`
	// flushed waits for this server's disk only.
	flushed commitMode = `'local'`
	// relaxed does not wait: what it writes may be forgotten by a crash of the server, and must be found again by itself.
	relaxed commitMode = `'off'`
)

// The usual limits: a read, a write to the relay's own tables, and a write that a person waits for.
var (
	reading  = limits{lock: 2 * time.Second, statement: 30 * time.Second, interpreted: true}
	writing  = limits{lock: 2 * time.Second, statement: 10 * time.Second, commit: durable}
	scanning = limits{lock: 2 * time.Second} // over the whole outbox: takes as long as it takes
)

// pinned are the settings that decide how values are printed and read, whatever the database's or the role's defaults:
// the same as in the replication session, so that an event has the same bytes whether the stream or the table gave it.
const pinned = `set_config('datestyle', 'ISO, YMD', true), set_config('intervalstyle', 'postgres', true),
 set_config('timezone', 'UTC', true), set_config('bytea_output', 'hex', true), set_config('extra_float_digits', '1', true)`

func (l limits) sql() string {
	text := fmt.Sprintf("SELECT set_config('lock_timeout', '%d', true), set_config('statement_timeout', '%d', true)",
		l.lock.Milliseconds(), l.statement.Milliseconds())
	if l.statement > 0 { // a process that is frozen within a transaction would hold up VACUUM for as long as it is
		text += fmt.Sprintf(", set_config('idle_in_transaction_session_timeout', '%d', true)", l.statement.Milliseconds())
	}
	if l.interpreted {
		text += ", set_config('jit', 'off', true)"
	}
	if l.commit != "" {
		text += ", set_config('synchronous_commit', " + string(l.commit) + ", true)"
	}
	return text
}

// printing is sql for a transaction whose values go through text.
func (l limits) printing() string { return l.sql() + ", " + pinned }

// one runs one statement in one transaction and one round trip, and hands its row to scan.
func (s *Store) one(ctx context.Context, l limits, scan func(pgx.Row) error, text string, args ...any) error {
	var b pgx.Batch
	b.Queue(l.printing())
	b.Queue(text, args...)
	results := s.pool.SendBatch(ctx, &b)
	_, err := results.Exec()
	if err == nil {
		err = scan(results.QueryRow())
	}
	// The commit's own error arrives last. Without it a failed commit would look like success.
	if closed := results.Close(); err == nil || err == pgx.ErrNoRows && closed != nil {
		err = closed
	}
	return err
}

// tx runs several statements in one transaction.
func (s *Store) tx(ctx context.Context, l limits, do func(pgx.Tx) error) error {
	// Whatever the default: a fence must see the epoch as it is when the lock is granted.
	return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, l.printing()); err != nil {
			return err
		}
		return do(tx)
	})
}

// fenced is tx for writes that only the owner of the slot may make: the epoch's row is locked FOR SHARE to the end.
func (s *Store) fenced(ctx context.Context, l limits, do func(pgx.Tx) error) error {
	return s.tx(ctx, l, func(tx pgx.Tx) error {
		var held int
		err := tx.QueryRow(ctx, s.names.sql(`SELECT 1 FROM {epoch} WHERE slot = $1 AND epoch = $2 FOR SHARE`),
			s.config.Slot, s.epoch.Load()).Scan(&held)
		if err == pgx.ErrNoRows {
			return ErrFenced
		}
		if err != nil {
			return err
		}
		return do(tx)
	})
}

// params are the parameters of a statement in wire form. Arrays of a batch are built without an allocation per row.
type params struct {
	values  [][]byte
	oids    []uint32
	formats []int16
}

const (
	textFormat   = 0
	binaryFormat = 1
)

func (p *params) add(oid uint32, format int16, value []byte) *params {
	p.values, p.oids, p.formats = append(p.values, value), append(p.oids, oid), append(p.formats, format)
	return p
}

func (p *params) int4(v int32) *params {
	return p.add(pgtype.Int4OID, binaryFormat, binary.BigEndian.AppendUint32(nil, uint32(v)))
}

func (p *params) int8(v int64) *params {
	return p.add(pgtype.Int8OID, binaryFormat, binary.BigEndian.AppendUint64(nil, uint64(v)))
}

func (p *params) boolean(v bool) *params {
	b := []byte{0}
	if v {
		b[0] = 1
	}
	return p.add(pgtype.BoolOID, binaryFormat, b)
}

func (p *params) text(v string) *params { return p.add(pgtype.TextOID, textFormat, []byte(v)) }

// arrayHeader begins a one-dimensional array without nulls in binary form (array_recv in Postgres's arrayfuncs.c).
func arrayHeader(b []byte, element uint32, n int) []byte {
	if n == 0 {
		b = binary.BigEndian.AppendUint32(b, 0)
		b = binary.BigEndian.AppendUint32(b, 0)
		return binary.BigEndian.AppendUint32(b, element)
	}
	b = binary.BigEndian.AppendUint32(b, 1) // dimensions
	b = binary.BigEndian.AppendUint32(b, 0) // no nulls
	b = binary.BigEndian.AppendUint32(b, element)
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	return binary.BigEndian.AppendUint32(b, 1) // lower bound
}

const arrayHeaderSize = 20

// send runs one statement with wire parameters, which must not hold or give times or other text that depends on settings, in one transaction and one round trip. Each row of the result, in the
// formats asked for, is handed to each; its bytes are valid only during the call.
func (s *Store) send(ctx context.Context, l limits, text string, p *params, formats []int16, each func(row [][]byte) error) error {
	return s.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		var b pgconn.Batch
		b.ExecParams(l.sql(), nil, nil, nil, nil)
		b.ExecParams(text, p.values, p.oids, p.formats, formats)
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
