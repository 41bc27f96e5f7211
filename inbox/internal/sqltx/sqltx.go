// Package sqltx lends a transaction of pgx to code that wants a *sql.Tx. It speaks no protocol: every statement goes
// through the pgx.Tx that it was given, and so does whatever guards that one. Who lends the transaction also ends it.
//
// Tested on a real Postgres in the module test/inbox.
package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

var (
	errEnds = errors.New("the transaction is lent: it must not be ended here, the event's id is in it, too")
	errOnce = errors.New("the transaction is lent, and is all that there is: no second one can begin")
)

// Lend calls with the transaction. It returns use's error, or why the *sql.Tx was ended.
func Lend(ctx context.Context, tx pgx.Tx, use func(*sql.Tx) error) error {
	lent := &conn{tx: tx}
	db := sql.OpenDB(lent)
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	// Not the handler's context: database/sql would end the transaction with it, in a goroutine of its own.
	own, err := db.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return fmt.Errorf("lend the transaction: %w", err)
	}
	err = use(own)
	early := lent.ended
	lent.returned = true
	_ = own.Rollback()
	if early && !errors.Is(err, errEnds) {
		return errors.Join(err, errEnds)
	}
	return err
}

// conn is connector, connection and transaction in one: there is one of each. database/sql calls it by one goroutine at
// a time.
type conn struct {
	tx       pgx.Tx
	begun    bool
	ended    bool // Commit or Rollback was called
	returned bool // and by Lend
}

func (c *conn) Connect(context.Context) (driver.Conn, error) { return c, nil }
func (c *conn) Driver() driver.Driver                        { return nil }
func (c *conn) Close() error                                 { return nil }
func (c *conn) Begin() (driver.Tx, error)                    { return nil, errOnce }

func (c *conn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	if c.begun {
		return nil, errOnce
	}
	c.begun = true
	return c, nil
}

func (c *conn) Commit() error   { return c.end() }
func (c *conn) Rollback() error { return c.end() }

func (c *conn) end() error {
	c.ended = true
	if !c.returned {
		return errEnds
	}
	return nil
}

// CheckNamedValue takes every argument as it is: pgx knows more types than database/sql.
func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if v.Name != "" {
		return fmt.Errorf("argument %s has a name: Postgres numbers them, as in $1", v.Name)
	}
	if valuer, is := v.Value.(driver.Valuer); is {
		value, err := valuer.Value()
		v.Value = value
		return err
	}
	return nil
}

func values(args []driver.NamedValue) []any {
	all := make([]any, len(args))
	for i, a := range args {
		all[i] = a.Value
	}
	return all
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	tag, err := c.tx.Exec(ctx, query, values(args)...)
	return driver.RowsAffected(tag.RowsAffected()), err
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	got, err := c.tx.Query(ctx, query, values(args)...)
	if err != nil {
		return nil, err
	}
	r := &rows{got: got, types: got.Conn().TypeMap()}
	if r.more = got.Next(); !r.more && got.Err() != nil { // errors of the statement come with its first row
		return nil, got.Err()
	}
	return r, nil
}

func (c *conn) Prepare(query string) (driver.Stmt, error) { return &statement{c, query}, nil }

// statement is prepared by pgx when it runs, which keeps it then.
type statement struct {
	*conn
	query string
}

func (s *statement) Close() error  { return nil }
func (s *statement) NumInput() int { return -1 }

func (s *statement) Exec([]driver.Value) (driver.Result, error) { return nil, driver.ErrSkip }
func (s *statement) Query([]driver.Value) (driver.Rows, error)  { return nil, driver.ErrSkip }

func (s *statement) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.conn.ExecContext(ctx, s.query, args)
}

func (s *statement) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.conn.QueryContext(ctx, s.query, args)
}

// rows gives values as database/sql knows them.
type rows struct {
	got   pgx.Rows
	types *pgtype.Map
	more  bool // the next row is there already
}

func (r *rows) Columns() []string {
	fields := r.got.FieldDescriptions()
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return names
}

func (r *rows) Close() error {
	r.got.Close()
	return r.got.Err()
}

func (r *rows) Next(into []driver.Value) error {
	if !r.more {
		if err := r.got.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	raw := r.got.RawValues()
	for i, f := range r.got.FieldDescriptions() {
		var err error
		if into[i], err = r.value(f, raw[i]); err != nil {
			return fmt.Errorf("read column %s: %w", f.Name, err)
		}
	}
	r.more = r.got.Next()
	return nil
}

func (r *rows) value(f pgconn.FieldDescription, raw []byte) (driver.Value, error) {
	if raw == nil {
		return nil, nil
	}
	switch f.DataTypeOID {
	case pgtype.BoolOID:
		return scan[bool](r, f, raw)
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID, pgtype.OIDOID:
		return scan[int64](r, f, raw)
	case pgtype.Float4OID, pgtype.Float8OID:
		return scan[float64](r, f, raw)
	case pgtype.ByteaOID:
		return scan[[]byte](r, f, raw)
	case pgtype.DateOID, pgtype.TimestampOID, pgtype.TimestamptzOID:
		if at, err := scan[time.Time](r, f, raw); err == nil {
			return at, nil
		}
	}
	return scan[string](r, f, raw) // also infinity, which no time.Time is
}

func scan[T any](r *rows, f pgconn.FieldDescription, raw []byte) (value T, err error) {
	err = r.types.Scan(f.DataTypeOID, f.Format, raw, &value)
	return value, err
}
