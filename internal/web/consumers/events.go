package consumers

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

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// What a consumer can have done with an event that it holds back.
const (
	Dead      = "dead" // and no one has replayed or discarded it
	Parked    = "parked"
	Replayed  = "replayed"
	Discarded = "discarded"
)

// States are all of them.
var States = []string{Dead, Parked, Replayed, Discarded}

// Event is one that is parked, or was given up. Names in JSON are stable, and those of the relay's own lists.
type Event struct {
	ID          string     `json:"id"`
	Source      string     `json:"source"` // what the id is unique in; empty: everywhere
	State       string     `json:"state"`
	Topic       string     `json:"topic"`
	Partition   int32      `json:"partition"`
	Offset      int64      `json:"offset"`
	Key         *string    `json:"key"` // bytes that are not UTF-8 are shown as \x and hex digits
	EventType   *string    `json:"event_type"`
	SentAt      *time.Time `json:"sent_at"`
	Attempts    int        `json:"attempts"`
	Class       string     `json:"class"`
	LastError   string     `json:"last_error"`
	At          time.Time  `json:"at"`            // of the parking, or of the death
	Events      int64      `json:"events"`        // of a parked one: of its key that wait, itself included
	NextRetryAt *time.Time `json:"next_retry_at"` // of a parked one; null: behind another, or held
	Held        bool       `json:"held"`          // for a person
	Hands

	number int64 // of the row, for cursors
}

// Hands are those of the people who did something about a dead letter.
type Hands struct {
	ReplayedAt  *time.Time `json:"replayed_at"`
	DiscardedAt *time.Time `json:"discarded_at"`
	ResolvedBy  *string    `json:"resolved_by"`
	Note        *string    `json:"note"`
}

// Whole is an event with what it carries.
type Whole struct {
	Event
	Payload []byte   // nil: a tombstone
	Headers []Header // in their order
	Hidden  bool     // payload and headers are not to be shown
}

// Header is one of a message; a value that is no UTF-8 is shown as \x and hex digits.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// MarshalJSON shows the payload as the JSON that it is, or else as text or base64, and says which.
func (w Whole) MarshalJSON() ([]byte, error) {
	if w.Hidden {
		return json.Marshal(struct {
			Event
			Hidden bool `json:"payload_hidden"`
		}{w.Event, true})
	}
	shown := struct {
		Event
		Payload  any      `json:"payload"`
		Encoding string   `json:"payload_encoding"`
		Headers  []Header `json:"headers"`
	}{Event: w.Event, Headers: w.Headers}
	shown.Payload, shown.Encoding = store.ShownPayload(w.Payload)
	return json.Marshal(shown)
}

// Of each state the table of its events, and what they have in common there. A parked event is told by the first of its
// key, unless it is named.
const (
	deadSQL = `SELECT l.id, l.event_id, coalesce(s.name, ''), '%s', l.topic, l.partition, l."offset", l.key, l.type,
		l.sent_at, l.attempts, l.class, l.error, l.dead_at, 0::bigint, NULL::timestamptz, false, l.replayed_at,
		l.discarded_at, l.resolved_by, l.note %s
		FROM inbox_dead l LEFT JOIN inbox_source s ON s.source = l.source WHERE l.consumer = $1 AND %s`
	parkedSQL = `SELECT l.seq, l.event_id, coalesce(s.name, ''), '%s', l.topic, l.partition, l."offset", l.key, l.type,
		l.sent_at, l.attempts, l.class, l.error, l.parked_at,
		(SELECT count(*) FROM inbox_parked f WHERE f.consumer = l.consumer AND f.topic = l.topic
			AND f.partition = l.partition AND f.lane = l.lane AND f.seq >= l.seq),
		nullif(l.next_at, 'infinity'), coalesce(l.next_at = 'infinity', false), NULL::timestamptz, NULL::timestamptz,
		NULL::text, NULL::text %s
		FROM inbox_parked l LEFT JOIN inbox_source s ON s.source = l.source WHERE l.consumer = $1 AND %s`
	first = `NOT EXISTS (SELECT FROM inbox_parked b WHERE b.consumer = l.consumer AND b.topic = l.topic
		AND b.partition = l.partition AND b.lane = l.lane AND b.seq < l.seq)`
)

// deadStates are the conditions behind the states of dead letters.
var deadStates = map[string]string{
	Dead: "l.replayed_at IS NULL AND l.discarded_at IS NULL", Replayed: "l.replayed_at IS NOT NULL",
	Discarded: "l.discarded_at IS NOT NULL",
}

const payloadColumns = ", l.value, l.header_names, l.header_values"

func scan(e *Event, row pgx.Row, more ...any) error {
	var key []byte
	err := row.Scan(append([]any{&e.number, &e.ID, &e.Source, &e.State, &e.Topic, &e.Partition, &e.Offset, &key,
		&e.EventType, &e.SentAt, &e.Attempts, &e.Class, &e.LastError, &e.At, &e.Events, &e.NextRetryAt, &e.Held,
		&e.ReplayedAt, &e.DiscardedAt, &e.ResolvedBy, &e.Note}, more...)...)
	if key != nil {
		text := shownText(key)
		e.Key = &text
	}
	if e.EventType != nil && *e.EventType == "" {
		e.EventType = nil
	}
	return err
}

func shownText(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return `\x` + hex.EncodeToString(b)
}

// Events lists a consumer's events of a state: dead letters the newest first, parked keys by the first event of each,
// the longest parked first; at most limit behind the cursor.
func (d *Desk) Events(ctx context.Context, consumer, state string, f Filter, after string,
	limit int) (page store.Page[Event], err error) {
	page.Items = []Event{}
	number, err := d.number(ctx, consumer)
	if err != nil {
		return page, err
	}
	c, err := conditionsOf(number, state, f)
	if err != nil {
		return page, err
	}
	order, behind := "l.id DESC", "l.id < ?"
	if state == Parked {
		order, behind = "l.seq", "l.seq > ?"
	}
	if after != "" {
		n, err := strconv.ParseInt(after, 10, 64)
		if err != nil {
			return page, store.ErrCursor
		}
		c.add(behind, n)
	}
	text := d.sql(c.query("") + " ORDER BY " + order + " LIMIT " + strconv.Itoa(limit+1))
	err = store.ReadOnly(ctx, d.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, text, c.args...)
		if err == nil {
			page.Items, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Event, err error) {
				return e, scan(&e, row)
			})
		}
		return err
	})
	if err != nil {
		return page, fmt.Errorf("list the events of %s: %w", consumer, d.explained(err))
	}
	if len(page.Items) > limit {
		page.Items = page.Items[:limit]
		page.Next = strconv.FormatInt(page.Items[limit-1].number, 10)
	}
	return page, nil
}

// Event is the parked event or dead letter of the id, whatever became of it.
func (d *Desk) Event(ctx context.Context, consumer, id string) (*Whole, error) {
	number, err := d.number(ctx, consumer)
	if err != nil {
		return nil, err
	}
	for _, state := range []string{Parked, Dead, Replayed, Discarded} {
		c, err := conditionsOf(number, state, Filter{IDs: []string{id}})
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoEvent, err)
		}
		var w Whole
		var names []string
		var values [][]byte
		err = store.ReadOnly(ctx, d.pool, func(tx pgx.Tx) error {
			row := tx.QueryRow(ctx, d.sql(c.query(payloadColumns)+" LIMIT 1"), c.args...)
			return scan(&w.Event, row, &w.Payload, &names, &values)
		})
		if errors.Is(err, pgx.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the event: %w", d.explained(err))
		}
		w.Headers = make([]Header, 0, len(names))
		for i, name := range names {
			w.Headers = append(w.Headers, Header{name, shownText(values[i])})
		}
		return &w, nil
	}
	return nil, ErrNoEvent
}
