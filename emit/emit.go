// Package emit writes events into the outbox, in the transaction that makes them true: one call of the SQL function
// emit, which `cdc-relay init --emit` or [SQL] creates. It depends on the standard library only, and takes a pgx.Tx as
// well as an *sql.Tx. It neither opens nor ends a transaction.
package emit

import (
	"context"
	"crypto/rand"
	"database/sql"
	_ "embed"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Event is one row for the outbox. AggregateType chooses the topic, AggregateID the key: events of one aggregate keep
// the order of their commits.
type Event struct {
	ID            string // a uuid; empty: a new one, in the order of time
	AggregateType string
	AggregateID   string
	Type          string
	Payload       any               // encoded as JSON; json.RawMessage goes as it is, []byte is refused; nil: a tombstone
	Headers       map[string]string // to Kafka's headers; traceparent is one of them
	// Lock locks the aggregate until the commit: other transactions that emit for it with Lock wait. Use it if the
	// event depends on state that others change; without it two such transactions can commit in the other order.
	Lock bool
}

// Exec is implemented by pgx.Tx, and by connections and pools, for an event that is a transaction of its own.
type Exec[T any] interface {
	Exec(ctx context.Context, query string, args ...any) (T, error)
}

// Emit writes an event with pgx, and returns its id.
func Emit[T any](ctx context.Context, tx Exec[T], e Event) (id string, err error) {
	query, args, id, err := e.statement()
	if err != nil {
		return "", err
	}
	if _, err := tx.Exec(ctx, query, args...); err != nil {
		return "", fmt.Errorf("emit %s of %s/%s: %w", e.Type, e.AggregateType, e.AggregateID, err)
	}
	return id, nil
}

// ExecContext is implemented by *sql.Tx.
type ExecContext interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// EmitSQL is Emit with database/sql.
//
//nolint:revive // SQL is the function's text
func EmitSQL(ctx context.Context, tx ExecContext, e Event) (id string, err error) {
	query, args, id, err := e.statement()
	if err != nil {
		return "", err
	}
	if _, err := tx.ExecContext(ctx, query, args...); err != nil {
		return "", fmt.Errorf("emit %s of %s/%s: %w", e.Type, e.AggregateType, e.AggregateID, err)
	}
	return id, nil
}

const call = `SELECT emit(aggregate_type => $1, aggregate_id => $2, event_type => $3, payload => $4::jsonb,
	headers => $5::jsonb, lock => $6, id => $7::uuid)`

func (e Event) statement() (query string, args []any, id string, err error) {
	if e.AggregateType == "" || e.Type == "" {
		return "", nil, "", errors.New("emit: an event needs an aggregate type and a type")
	}
	var payload, headers any // text or NULL
	if isBytes(e.Payload) {
		return "", nil, "", fmt.Errorf("emit %s: the payload is a %T, which JSON can only hold as base64: pass "+
			"json.RawMessage(payload) if it is JSON, or put the bytes into a field", e.Type, e.Payload)
	}
	if e.Payload != nil {
		text, err := json.Marshal(e.Payload)
		if err != nil {
			return "", nil, "", fmt.Errorf("emit %s: encode the payload: %w", e.Type, err)
		}
		payload = string(text)
	}
	if len(e.Headers) > 0 {
		text, err := json.Marshal(e.Headers)
		if err != nil {
			return "", nil, "", fmt.Errorf("emit %s: encode the headers: %w", e.Type, err)
		}
		headers = string(text)
	}
	if id = e.ID; id == "" {
		id = NewID()
	}
	return call, []any{e.AggregateType, e.AggregateID, e.Type, payload, headers, e.Lock, id}, id, nil
}

// isBytes reports whether a payload is bytes that know no JSON of their own.
func isBytes(payload any) bool {
	switch payload.(type) {
	case nil, json.Marshaler, encoding.TextMarshaler:
		return false
	}
	t := reflect.TypeOf(payload)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8
}

// NewID returns a UUID of version 7, whose order is nearly that of time, so that an index of them is filled page by
// page.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[6:]) // it never fails
	ms := time.Now().UnixMilli()
	for i := range 6 {
		b[i] = byte(ms >> (40 - 8*i))
	}
	b[6] = b[6]&0x0f | 0x70
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

//go:embed emit_0001.sql
var function string

// SQL returns the statements that create the function emit in a schema, for an outbox with the columns that `cdc-relay
// init` gives it. For other column names use `cdc-relay init --emit`. The role that runs them owns the function and
// needs INSERT on the outbox; the application needs only EXECUTE.
func SQL(schema, outbox string) string {
	return strings.NewReplacer("{{.Schema}}", quote(schema), "{{.Outbox}}", outbox, "{{.Columns}}",
		"id, aggregate_type, aggregate_id, event_type, payload, headers").Replace(function)
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// Row is the result of QueryRow, of pgx or database/sql.
type Row interface{ Scan(into ...any) error }

// QueryRow is implemented by pgx pools. For database/sql wrap db.QueryRowContext.
type QueryRow[R Row] interface {
	QueryRow(ctx context.Context, query string, args ...any) R
}

// ErrNoRow is returned by [WaitPublished] for an event without a row in the outbox: its transaction did not commit, or
// the event was published and its row deleted.
var ErrNoRow = errors.New("unknown, or published and deleted")

// WaitPublished waits until the relay has recorded the event, or the context ends, and returns its status: published,
// or failed for a dead letter. view is the outbox's status view, such as public.outbox_events_status. Call it after the
// commit, on a connection that sees the commit. If rows are deleted after publishing it returns [ErrNoRow].
func WaitPublished[R Row](ctx context.Context, db QueryRow[R], view, id string) (status string, err error) {
	// The parameter takes the type of the outbox's id: so its index is used, and a uuid may be written in capitals.
	query := "SELECT coalesce((SELECT status FROM " + view + " WHERE id = $1), '')"
	pause := time.Millisecond
	for {
		err := db.QueryRow(ctx, query, id).Scan(&status)
		switch {
		case err != nil:
			return "", fmt.Errorf("look up event %s: %w", id, err)
		case status == "":
			return "", fmt.Errorf("emit: event %s has no row: %w", id, ErrNoRow)
		case status == "published" || status == "failed":
			return status, nil
		}
		select {
		case <-ctx.Done():
			return status, fmt.Errorf("emit: event %s is not published yet: %w", id, context.Cause(ctx))
		case <-time.After(pause):
			pause = min(pause*3/2, 50*time.Millisecond)
		}
	}
}
