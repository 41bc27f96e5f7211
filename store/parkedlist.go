package store

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/outbox"
)

// ParkedKey is a key with parked events, told by the first of them, or one parked event without a key. Names in JSON are
// stable.
type ParkedKey struct {
	Topic         string     `json:"topic"`
	Key           *string    `json:"key"` // bytes that are not UTF-8 are shown as \x and hex digits
	Events        int64      `json:"events"`
	ID            string     `json:"id"`
	EventType     *string    `json:"event_type"`
	AggregateType *string    `json:"aggregate_type"`
	Position      string     `json:"position"`
	Attempts      int        `json:"attempts"`
	Class         string     `json:"class"`
	LastError     string     `json:"last_error"`
	LastErrorAt   *time.Time `json:"last_error_at"`
	ParkedAt      time.Time  `json:"parked_at"`
	NextRetryAt   *time.Time `json:"next_retry_at"` // null: when its topic or partition is well
	Replay        bool       `json:"replay"`        // it was a dead letter
	Waits         bool       `json:"waits"`         // for its topic or partition

	after parkedCursor
}

// parkedCursor is a place in the list: keys by topic and hash of the key, then events without a key by topic and place.
type parkedCursor struct {
	Topic   string `json:"t"`
	Hash    string `json:"h,omitempty"`
	Keyless bool   `json:"n,omitempty"`
	ID      string `json:"i,omitempty"`
}

const parkedHead = `p.event_id::text, p.topic, p.key, md5(p.key), p.event_type, p.aggregate_type, p.epoch, p.from_stream, p.position_order, p.position_index,
 p.retry_count, p.error_class, coalesce(p.last_error, ''), p.last_error_at, p.parked_at, NULLIF(p.next_retry_at, 'infinity'), p.replay IS NOT NULL, coalesce(p.next_retry_at = 'infinity', false)`

// nextKeySQL is the first event of the first key behind (topic, hash); one index probe.
const nextKeySQL = `SELECT p.* FROM {parked} p WHERE p.source = $1 AND p.key IS NOT NULL AND (p.topic, md5(p.key)) > (%s, %s)
 ORDER BY p.topic, md5(p.key), p.epoch, p.from_stream, p.position_order, p.position_index LIMIT 1`

// ParkedKeys lists keys with parked events, and parked events without a key, that the filter chooses by their first event;
// at most limit of them behind the cursor, "" is the beginning.
func (s *Store) ParkedKeys(ctx context.Context, f Filter, after string, limit int) (Page[ParkedKey], error) {
	page := Page[ParkedKey]{Items: []ParkedKey{}}
	var from parkedCursor
	if after != "" {
		text, err := base64.RawURLEncoding.DecodeString(after)
		if err == nil {
			err = json.Unmarshal(text, &from)
		}
		if err != nil || strings.ContainsRune(from.Topic+from.Hash, 0) {
			return page, ErrCursor
		}
	}
	o, source, err := s.outboxAndSource(ctx)
	if err == nil {
		err = s.tx(ctx, reading, func(tx pgx.Tx) error {
			if !from.Keyless {
				if err := s.parkedKeys(ctx, tx, o, source, f, from, limit+1, &page.Items); err != nil {
					return err
				}
				from = parkedCursor{Keyless: true}
			}
			return s.parkedKeyless(ctx, tx, o, source, f, from, limit+1-len(page.Items), &page.Items)
		})
	}
	if err != nil {
		return page, fmt.Errorf("list parked events: %w", err)
	}
	if len(page.Items) > limit {
		page.Items = page.Items[:limit]
		text, err := json.Marshal(page.Items[limit-1].after)
		if err != nil {
			return page, fmt.Errorf("list parked events: %w", err)
		}
		page.Next = base64.RawURLEncoding.EncodeToString(text)
	}
	return page, nil
}

// parkedKeys goes from key to key by the index of lanes, so that a page of a large table costs what the page needs.
func (s *Store) parkedKeys(ctx context.Context, tx pgx.Tx, o *Outbox, source int32, f Filter, from parkedCursor, limit int, into *[]ParkedKey) error {
	c := conditions{args: []any{source, from.Topic, from.Hash}}
	if err := c.matching(f, parkedPlace, o, "now()"); err != nil {
		return err
	}
	text := `WITH RECURSIVE heads AS (
 (` + fmt.Sprintf(nextKeySQL, "$2::text", "$3::text") + `)
 UNION ALL
 SELECT n.* FROM heads h CROSS JOIN LATERAL (` + fmt.Sprintf(nextKeySQL, "h.topic", "md5(h.key)") + `) n)
SELECT ` + parkedHead + `, (SELECT count(*) FROM {parked} q WHERE q.source = $1 AND q.topic = p.topic AND md5(q.key) = md5(p.key))
FROM heads p WHERE true` + c.text.String() + ` LIMIT ` + strconv.Itoa(limit)
	return s.collectParked(ctx, tx, text, c.args, into)
}

func (s *Store) parkedKeyless(ctx context.Context, tx pgx.Tx, o *Outbox, source int32, f Filter, from parkedCursor, limit int, into *[]ParkedKey) error {
	if limit <= 0 {
		return nil
	}
	c := conditions{args: []any{source}}
	if err := c.matching(f, parkedPlace, o, "now()"); err != nil {
		return err
	}
	if from.ID != "" {
		if _, err := appendID(nil, o.IDType, []byte(from.ID)); err != nil {
			return ErrCursor
		}
		c.args = append(c.args, from.Topic, from.ID)
		n := len(c.args)
		fmt.Fprintf(&c.text, ` AND (p.topic, p.event_id) > ($%d::text, $%d::text::%s%s)`, n-1, n, o.IDType, o.collate())
	}
	text := `SELECT ` + parkedHead + `, 1::bigint FROM {parked} p WHERE p.source = $1 AND p.key IS NULL` + c.text.String() +
		` ORDER BY p.topic, p.event_id LIMIT ` + strconv.Itoa(limit)
	return s.collectParked(ctx, tx, text, c.args, into)
}

func (s *Store) collectParked(ctx context.Context, tx pgx.Tx, text string, args []any, into *[]ParkedKey) error {
	rows, err := tx.Query(ctx, s.names.sql(text), args...)
	if err != nil {
		return err
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (k ParkedKey, err error) {
		var key []byte
		var hash *string
		var p outbox.Position
		var fromStream bool
		var order, index int64
		err = row.Scan(&k.ID, &k.Topic, &key, &hash, &k.EventType, &k.AggregateType, &p.Epoch, &fromStream, &order, &index,
			&k.Attempts, &k.Class, &k.LastError, &k.LastErrorAt, &k.ParkedAt, &k.NextRetryAt, &k.Replay, &k.Waits, &k.Events)
		p.Table, p.Order, p.Index = !fromStream, uint64(order), uint32(index)
		k.Key, k.Position, k.after = keyText(key), p.String(), parkedCursor{Topic: k.Topic}
		if hash != nil {
			k.after.Hash = *hash
		} else {
			k.after.Keyless, k.after.ID = true, k.ID
		}
		return k, err
	})
	*into = append(*into, found...)
	return err
}

// OldestParked is when the event was parked that is parked longest, by the server's clock; zero when none is. It reads every
// parked row.
func (s *Store) OldestParked(ctx context.Context) (time.Time, error) {
	var at *time.Time
	o, source, err := s.outboxAndSource(ctx)
	if err == nil {
		err = s.one(ctx, reading, func(row pgx.Row) error { return row.Scan(&at) },
			s.sql(o, `SELECT min(parked_at) FROM {parked} WHERE source = $1`), source)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("look for the oldest parked event: %w", err)
	}
	if at == nil {
		return time.Time{}, nil
	}
	return *at, nil
}
