package store

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// What may have become of a dead letter.
const (
	DeadOpen      = "open" // nothing yet; on its way included
	DeadReplayed  = "replayed"
	DeadDiscarded = "discarded"
	DeadAny       = "all"
)

// DeadStates are all of them.
var DeadStates = []string{DeadOpen, DeadReplayed, DeadDiscarded, DeadAny}

// deadStates are the conditions behind them.
var deadStates = map[string]string{
	DeadOpen: "d.replayed_at IS NULL AND d.discarded_at IS NULL", DeadReplayed: "d.replayed_at IS NOT NULL",
	DeadDiscarded: "d.discarded_at IS NOT NULL", DeadAny: "true",
}

// DeadLetter is an event that was given up, as people see it. Names in JSON are stable.
type DeadLetter struct {
	ID            string     `json:"id"` // of the event
	Topic         string     `json:"topic"`
	Partition     *int32     `json:"partition"`
	Key           *string    `json:"key"` // bytes that are not UTF-8 are shown as \x and hex digits
	EventType     *string    `json:"event_type"`
	AggregateType *string    `json:"aggregate_type"`
	AggregateID   *string    `json:"aggregate_id"`
	Position      string     `json:"position"`
	Attempts      int        `json:"attempts"`
	Class         string     `json:"class"`
	Code          string     `json:"code"`
	LastError     string     `json:"last_error"`
	CreatedAt     *time.Time `json:"created_at"` // nil also where RFC 3339 cannot say it: infinity, BC, the year 10000
	DeadAt        time.Time  `json:"dead_at"`
	Replaying     bool       `json:"replaying"` // parked again, on its way to its topic
	ReplayedAt    *time.Time `json:"replayed_at"`
	DiscardedAt   *time.Time `json:"discarded_at"`
	ResolvedBy    *string    `json:"resolved_by"`
	Note          *string    `json:"note"`

	number int64 // the row's
}

// DeadLetterWhole is a dead letter with what it would send.
type DeadLetterWhole struct {
	DeadLetter
	Payload []byte `json:"-"` // nil: SQL NULL
	Headers []byte `json:"-"` // JSON, or nil
}

// Page is a part of a list. Next is the cursor of the following part, empty at the end.
type Page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next"`
}

// ErrCursor says that a cursor is not one that a list gave.
var ErrCursor = errors.New("the cursor is not one that the list gave")

// ErrNoDeadLetter says that no dead letter has the event's id.
var ErrNoDeadLetter = errors.New("there is no dead letter of an event with this id")

const deadColumns = `d.id, d.original_id::text, d.topic, d.partition, d.key, d.event_type, d.aggregate_type, d.aggregate_id, d.position, d.attempts, d.error_class,
 d.error_code, d.last_error, CASE WHEN d.created_at >= '0001-01-01 00:00+00' AND d.created_at < '10000-01-01 00:00+00' THEN d.created_at END, d.dead_at, d.replayed_at, d.discarded_at, d.resolved_by, d.note,
 EXISTS (SELECT 1 FROM {parked} q WHERE q.source = d.source AND q.event_id = d.original_id)`

func (d *DeadLetter) scan(row pgx.Row, more ...any) error {
	var key []byte
	into := append([]any{&d.number, &d.ID, &d.Topic, &d.Partition, &key, &d.EventType, &d.AggregateType, &d.AggregateID, &d.Position, &d.Attempts, &d.Class,
		&d.Code, &d.LastError, &d.CreatedAt, &d.DeadAt, &d.ReplayedAt, &d.DiscardedAt, &d.ResolvedBy, &d.Note, &d.Replaying}, more...)
	err := row.Scan(into...)
	d.Key = keyText(key)
	return err
}

// keyText is a message key as people see it.
func keyText(key []byte) *string {
	if key == nil {
		return nil
	}
	text := string(key)
	if !utf8.ValidString(text) {
		text = `\x` + hex.EncodeToString(key)
	}
	return &text
}

// DeadLetters lists dead letters, the newest first, at most limit of them behind the cursor; "" is the beginning. The
// state is DeadOpen, DeadReplayed, DeadDiscarded or DeadAny.
func (s *Store) DeadLetters(ctx context.Context, f Filter, state, after string, limit int) (Page[DeadLetter], error) {
	page := Page[DeadLetter]{Items: []DeadLetter{}}
	condition, known := deadStates[state]
	if !known {
		return page, fmt.Errorf("%w: %q is no state of a dead letter: want open, replayed, discarded or all", ErrFilter, state)
	}
	o, source, err := s.outboxAndSource(ctx)
	if err != nil {
		return page, fmt.Errorf("list dead letters: %w", err)
	}
	c := conditions{args: []any{source}}
	c.text.WriteString("d.source = $1 AND " + condition)
	if after != "" {
		number, err := strconv.ParseInt(after, 10, 64)
		if err != nil {
			return page, ErrCursor
		}
		c.add("d.id < ?::bigint", number)
	}
	if err := c.matching(f, deadPlace, o, "now()"); err != nil {
		return page, fmt.Errorf("list dead letters: %w", err)
	}
	err = s.tx(ctx, reading, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.names.sql(`SELECT `+deadColumns+` FROM {dlq} d WHERE `+c.text.String()+` ORDER BY d.id DESC LIMIT `+strconv.Itoa(limit+1)), c.args...)
		if err != nil {
			return err
		}
		page.Items, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (d DeadLetter, err error) { return d, d.scan(row) })
		return err
	})
	if err != nil {
		return page, fmt.Errorf("list dead letters: %w", err)
	}
	if len(page.Items) > limit {
		page.Items = page.Items[:limit]
		page.Next = strconv.FormatInt(page.Items[limit-1].number, 10)
	}
	return page, nil
}

// DeadLetter is the dead letter of the event. ErrNoDeadLetter: there is none; with ErrFilter: there cannot be one, the id is of another
// type than the outbox's.
func (s *Store) DeadLetter(ctx context.Context, id string) (*DeadLetterWhole, error) {
	o, source, err := s.outboxAndSource(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the dead letter: %w", err)
	}
	if err := checkIDs(o, []string{id}); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoDeadLetter, err)
	}
	payload := `convert_to(d.payload::text, 'UTF8')`
	if o.PayloadType == "bytea" {
		payload = `d.payload`
	}
	var d DeadLetterWhole
	err = s.one(ctx, reading, func(row pgx.Row) error { return d.scan(row, &d.Payload, &d.Headers) },
		s.names.sql(`SELECT `+deadColumns+`, `+payload+`, convert_to(d.headers::text, 'UTF8') FROM {dlq} d WHERE d.source = $1 AND d.original_id = $2::text::`+o.IDType+o.collate()), source, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrNoDeadLetter
	}
	if err != nil {
		return nil, fmt.Errorf("read the dead letter: %w", err)
	}
	return &d, nil
}

// MarshalJSON shows the payload as the JSON that it is, or else as text or base64, and says which.
func (d DeadLetterWhole) MarshalJSON() ([]byte, error) {
	type shown struct {
		DeadLetter
		Payload  any             `json:"payload"`
		Encoding string          `json:"payload_encoding"` // json, text, base64; null: there is none
		Headers  json.RawMessage `json:"headers"`
	}
	s := shown{DeadLetter: d.DeadLetter, Headers: d.Headers}
	if !json.Valid(d.Headers) {
		s.Headers = nil
	}
	switch {
	case d.Payload == nil:
		s.Encoding = "null"
	case json.Valid(d.Payload):
		s.Payload, s.Encoding = json.RawMessage(d.Payload), "json"
	case utf8.Valid(d.Payload):
		s.Payload, s.Encoding = string(d.Payload), "text"
	default:
		s.Payload, s.Encoding = d.Payload, "base64"
	}
	return json.Marshal(s)
}
