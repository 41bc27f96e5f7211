package desk

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// listed is a key with the place in the list behind it.
type listed struct {
	record.ParkedKey
	after parkedCursor
}

// parkedCursor is a place in the list: keys by topic and hash of the key, then events without a key by topic and place.
type parkedCursor struct {
	Source  int32  `json:"s,omitempty"` // 0 unless there are several
	Topic   string `json:"t"`
	Hash    string `json:"h,omitempty"`
	Keyless bool   `json:"n,omitempty"`
	ID      string `json:"i,omitempty"`
}

const parkedHead = `p.event_id::text, p.topic, p.key, md5(p.key), p.event_type, p.aggregate_type, p.epoch,
 p.from_stream, p.position_order, p.position_index,
 p.retry_count, p.error_class, coalesce(p.last_error, ''), p.last_error_at, p.parked_at,
 NULLIF(p.next_retry_at, 'infinity'), p.replay IS NOT NULL, coalesce(p.next_retry_at = 'infinity', false), p.source, `

// nextKeySQL is the first event of the first key behind (topic, hash); one index probe.
const nextKeySQL = `SELECT p.* FROM {parked} p WHERE p.source = $1 AND p.key IS NOT NULL
 AND (p.topic, md5(p.key)) > (%s, %s)
 ORDER BY p.topic, md5(p.key), p.epoch, p.from_stream, p.position_order, p.position_index LIMIT 1`

// ParkedKeys lists keys with parked events, and parked events without a key, that the filter chooses by their first
// event; at most limit of them behind the cursor, "" is the beginning.
func (s *Desk) ParkedKeys(ctx context.Context, f record.Filter, after string,
	limit int) (record.Page[record.ParkedKey], error) {
	page := record.Page[record.ParkedKey]{Items: []record.ParkedKey{}}
	var from parkedCursor
	if after != "" {
		text, err := base64.RawURLEncoding.DecodeString(after)
		if err == nil {
			err = json.Unmarshal(text, &from)
		}
		if err != nil || strings.ContainsRune(from.Topic+from.Hash, 0) {
			return page, record.ErrCursor
		}
	}
	var found []listed
	o, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		err = s.db.Tx(ctx, db.Reading, func(tx pgx.Tx) error {
			sources, err := s.sourcesFrom(ctx, tx, source, from.Source)
			for i := 0; err == nil && i < len(sources) && len(found) <= limit; i++ {
				if from.Source != sources[i] && s.db.Several() {
					from = parkedCursor{Source: sources[i]}
				}
				err = s.parkedOf(ctx, tx, o, sources[i], f, from, limit+1, &found)
			}
			return err
		})
	}
	if err != nil {
		return page, fmt.Errorf("list parked events: %w", err)
	}
	if len(found) > limit {
		found = found[:limit]
		text, err := json.Marshal(found[limit-1].after)
		if err != nil {
			return page, fmt.Errorf("list parked events: %w", err)
		}
		page.Next = base64.RawURLEncoding.EncodeToString(text)
	}
	for _, k := range found {
		page.Items = append(page.Items, k.ParkedKey)
	}
	return page, nil
}

// sourcesFrom are the sources with parked events, from the one given on. Of one outbox it is the source.
func (s *Desk) sourcesFrom(ctx context.Context, tx pgx.Tx, source, from int32) ([]int32, error) {
	if !s.db.Several() {
		return []int32{source}, nil
	}
	text, of := s.db.Mine(s.db.Names.SQL(`WITH RECURSIVE n AS (
 SELECT min(p.source) AS source FROM {parked} p WHERE p.source = $1 AND p.source >= $2
 UNION ALL SELECT (SELECT min(p.source) FROM {parked} p WHERE p.source = $1 AND p.source > n.source)
 FROM n WHERE n.source IS NOT NULL)
SELECT source FROM n WHERE source IS NOT NULL`), source)
	rows, err := tx.Query(ctx, text, of, from)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int32])
}

// parkedOf lists those of one outbox behind the cursor, up to so many in the list.
func (s *Desk) parkedOf(ctx context.Context, tx pgx.Tx, o *db.Table, source int32, f record.Filter, from parkedCursor,
	most int, found *[]listed) error {
	if !from.Keyless {
		if err := s.parkedKeys(ctx, tx, o, source, f, from, most-len(*found), found); err != nil {
			return err
		}
		from = parkedCursor{Keyless: true}
	}
	return s.parkedKeyless(ctx, tx, o, source, f, from, most-len(*found), found)
}

// parkedKeys goes from key to key by the index of lanes, so that a page of a large table costs what the page needs.
func (s *Desk) parkedKeys(ctx context.Context, tx pgx.Tx, o *db.Table, source int32, f record.Filter, from parkedCursor,
	limit int, into *[]listed) error {
	c := conditions{args: []any{source, from.Topic, from.Hash}}
	if err := c.matching(f, parkedPlace, o, "now()"); err != nil {
		return err
	}
	text := `WITH RECURSIVE heads AS (
 (` + fmt.Sprintf(nextKeySQL, "$2::text", "$3::text") + `)
 UNION ALL
 SELECT n.* FROM heads h CROSS JOIN LATERAL (` + fmt.Sprintf(nextKeySQL, "h.topic", "md5(h.key)") + `) n)
SELECT ` + parkedHead + s.outboxOf("p") +
		`, (SELECT count(*) FROM {parked} q WHERE q.source = $1 AND q.topic = p.topic AND md5(q.key) = md5(p.key))
FROM heads p WHERE true` + c.text.String() + ` LIMIT ` + strconv.Itoa(limit)
	return s.collectParked(ctx, tx, text, c.args, into)
}

func (s *Desk) parkedKeyless(ctx context.Context, tx pgx.Tx, o *db.Table, source int32, f record.Filter,
	from parkedCursor, limit int, into *[]listed) error {
	if limit <= 0 {
		return nil
	}
	c := conditions{args: []any{source}}
	if err := c.matching(f, parkedPlace, o, "now()"); err != nil {
		return err
	}
	if from.ID != "" {
		if _, err := db.AppendID(nil, o.IDType, []byte(from.ID)); err != nil {
			return record.ErrCursor
		}
		c.args = append(c.args, from.Topic, from.ID)
		n := len(c.args)
		fmt.Fprintf(&c.text, ` AND (p.topic, p.event_id) > ($%d::text, $%d::text::%s%s)`, n-1, n, o.IDType, o.Collate())
	}
	text := `SELECT ` + parkedHead + s.outboxOf("p") +
		`, 1::bigint FROM {parked} p WHERE p.source = $1 AND p.key IS NULL` + c.text.String() +
		` ORDER BY p.topic, p.event_id LIMIT ` + strconv.Itoa(limit)
	return s.collectParked(ctx, tx, text, c.args, into)
}

func (s *Desk) collectParked(ctx context.Context, tx pgx.Tx, text string, args []any, into *[]listed) error {
	rows, err := tx.Query(ctx, s.db.Names.SQL(text), args...)
	if err != nil {
		return err
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (k listed, err error) {
		var key []byte
		var hash *string
		var p outbox.Position
		var fromStream bool
		var order, index int64
		var source int32
		err = row.Scan(&k.ID, &k.Topic, &key, &hash, &k.EventType, &k.AggregateType, &p.Epoch, &fromStream, &order, &index,
			&k.Attempts, &k.Class, &k.LastError, &k.LastErrorAt, &k.ParkedAt, &k.NextRetryAt, &k.Replay, &k.Waits, &source,
			&k.Outbox, &k.Events)
		p.Table, p.Order, p.Index = !fromStream, uint64(order), uint32(index)
		k.Key, k.Position, k.after = keyText(key), p.String(), parkedCursor{Topic: k.Topic}
		if s.db.Several() {
			k.after.Source = source
		}
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

const topicsNamed = 5

// ParkedSum counts the parked events that the filter chooses, each by itself and not with its key.
func (s *Desk) ParkedSum(ctx context.Context, f record.Filter) (sum record.ParkedSum, err error) {
	o, source, err := s.db.TableAndSource(ctx)
	where, of := s.db.Mine("p.source = $1", source)
	c := conditions{args: []any{of, topicsNamed}}
	if err == nil {
		err = c.matching(f, parkedPlace, o, "now()")
	}
	if err == nil {
		err = s.db.One(ctx, db.Scanning, func(row pgx.Row) error {
			return row.Scan(&sum.Matching, &sum.Troubled, &sum.Behind, &sum.Due, &sum.Topics)
		}, s.db.Names.SQL(
			`SELECT count(*), count(*) FILTER (WHERE p.next_retry_at = 'infinity'),
 count(*) FILTER (WHERE p.next_retry_at IS NULL),
 count(*) FILTER (WHERE p.next_retry_at <= now()),
 (coalesce(array_agg(DISTINCT p.topic) FILTER (WHERE p.next_retry_at = 'infinity'), '{}'))[1:$2::int]
FROM {parked} p WHERE `+where+c.text.String()), c.args...)
	}
	if err != nil {
		return record.ParkedSum{}, fmt.Errorf("count parked events: %w", err)
	}
	return sum, nil
}
