package desk

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// CountDead is the number of dead letters that no one has replayed or discarded.
func (s *Desk) CountDead(ctx context.Context) (n int64, err error) {
	o, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		text, of := s.db.Mine(s.db.SQL(o,
			`SELECT count(*) FROM {dlq} WHERE source = $1 AND replayed_at IS NULL AND discarded_at IS NULL`), source)
		err = s.db.One(ctx, db.Reading, func(row pgx.Row) error { return row.Scan(&n) }, text, of)
	}
	if err != nil {
		return 0, fmt.Errorf("count dead letters: %w", err)
	}
	return n, nil
}

// deadStates are the conditions behind them.
var deadStates = map[string]string{
	record.DeadOpen: "d.replayed_at IS NULL AND d.discarded_at IS NULL", record.DeadReplayed: "d.replayed_at IS NOT NULL",
	record.DeadDiscarded: "d.discarded_at IS NOT NULL", record.DeadAny: "true",
}

const deadColumns = `d.id, d.original_id::text, d.topic, d.partition, d.key, d.event_type, d.aggregate_type,
 d.aggregate_id, d.position, d.attempts, d.error_class,
 d.error_code, d.last_error, CASE WHEN d.created_at >= '0001-01-01 00:00+00'
 AND d.created_at < '10000-01-01 00:00+00' THEN d.created_at END, d.dead_at, d.replayed_at, d.discarded_at,
 d.resolved_by, d.note, d.edited_at, d.edited_by,
 EXISTS (SELECT 1 FROM {parked} q WHERE q.source = d.source AND q.event_id = d.original_id), d.source, `

// outboxOf is the name of the outbox of a row, where a slot has several.
func (s *Desk) outboxOf(alias string) string {
	if s.db.Several() || s.db.EventSource() != 0 {
		return s.db.Names.SQL(`(SELECT s.table_name FROM {source} s WHERE s.source = ` + alias + `.source)`)
	}
	return "''"
}

func scanDead(d *record.DeadLetter, row pgx.Row, more ...any) error {
	var key []byte
	into := append([]any{&d.Number, &d.ID, &d.Topic, &d.Partition, &key, &d.EventType, &d.AggregateType, &d.AggregateID,
		&d.Position, &d.Attempts, &d.Class,
		&d.Code, &d.LastError, &d.CreatedAt, &d.DeadAt, &d.ReplayedAt, &d.DiscardedAt, &d.ResolvedBy, &d.Note,
		&d.EditedAt, &d.EditedBy, &d.Replaying, &d.Source, &d.Outbox},
		more...)
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
func (s *Desk) DeadLetters(ctx context.Context, f record.Filter, state, after string,
	limit int) (record.Page[record.DeadLetter], error) {
	page := record.Page[record.DeadLetter]{Items: []record.DeadLetter{}}
	o, source, err := s.db.TableAndSource(ctx)
	if err != nil {
		return page, fmt.Errorf("list dead letters: %w", err)
	}
	c, err := s.deadIn(f, state, o, source)
	if err != nil {
		return page, fmt.Errorf("list dead letters: %w", err)
	}
	if after != "" {
		number, err := strconv.ParseInt(after, 10, 64)
		if err != nil {
			return page, record.ErrCursor
		}
		c.add("d.id < ?::bigint", number)
	}
	err = s.db.Tx(ctx, db.Reading, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.db.Names.SQL(`SELECT `+deadColumns+s.outboxOf("d")+` FROM {dlq} d WHERE `+
			c.text.String()+` ORDER BY d.id DESC LIMIT `+strconv.Itoa(limit+1)), c.args...)
		if err != nil {
			return err
		}
		page.Items, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (d record.DeadLetter, err error) {
			return d, scanDead(&d, row)
		})
		return err
	})
	if err != nil {
		return page, fmt.Errorf("list dead letters: %w", err)
	}
	if len(page.Items) > limit {
		page.Items = page.Items[:limit]
		page.Next = strconv.FormatInt(page.Items[limit-1].Number, 10)
	}
	return page, nil
}

// mostReasons bounds the list of reasons. Codes are few: the relay's own, and brokers' names for what they answer.
const mostReasons = 200

// DeadReasons are the reasons of dead letters, the most frequent first.
func (s *Desk) DeadReasons(ctx context.Context, f record.Filter, state string) ([]record.DeadReason, error) {
	o, source, err := s.db.TableAndSource(ctx)
	if err != nil {
		return nil, fmt.Errorf("count the reasons of dead letters: %w", err)
	}
	c, err := s.deadIn(f, state, o, source)
	if err != nil {
		return nil, fmt.Errorf("count the reasons of dead letters: %w", err)
	}
	reasons := []record.DeadReason{}
	err = s.db.Tx(ctx, db.Reading, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.db.Names.SQL(`WITH g AS (SELECT d.error_class, d.error_code, count(*) AS n,
 min(d.dead_at) AS oldest, max(d.dead_at) AS newest, max(d.id) AS id FROM {dlq} d WHERE `+c.text.String()+`
 GROUP BY d.error_class, d.error_code)
SELECT g.error_class, g.error_code, g.n, g.oldest, g.newest, l.last_error FROM g JOIN {dlq} l ON l.id = g.id
ORDER BY g.n DESC, g.newest DESC LIMIT `+strconv.Itoa(mostReasons)), c.args...)
		if err == nil {
			reasons, err = pgx.CollectRows(rows, pgx.RowToStructByPos[record.DeadReason])
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("count the reasons of dead letters: %w", err)
	}
	return reasons, nil
}

// deadIn are the conditions on dead letters d that are in the state and that the filter chooses.
func (s *Desk) deadIn(f record.Filter, state string, o *db.Table, source int32) (c *conditions, err error) {
	condition, known := deadStates[state]
	if !known {
		return nil, fmt.Errorf("%w: %q is not a state of a dead letter: want open, replayed, discarded or all",
			record.ErrFilter, state)
	}
	text, of := s.db.Mine("d.source = $1 AND "+condition, source)
	c = &conditions{args: []any{of}}
	c.text.WriteString(text)
	return c, c.matching(f, deadPlace, o, "now()")
}

// DeadLetter is the dead letter of the event. ErrNoDeadLetter: there is none; with ErrFilter: there cannot be one, the
// id is of another type than the outbox's.
func (s *Desk) DeadLetter(ctx context.Context, id string) (*record.DeadLetterWhole, error) {
	o, source, err := s.db.TableAndSource(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the dead letter: %w", err)
	}
	if err := db.CheckIDs(o, []string{id}); err != nil {
		return nil, fmt.Errorf("%w: %w", record.ErrNoDeadLetter, err)
	}
	text, of := s.db.Mine(s.db.Names.SQL(`SELECT `+deadColumns+s.outboxOf("d")+`, `+payloadBytes(o)+
		`, `+db.ToBytes("d.headers::text")+` FROM {dlq} d WHERE d.source = $1 AND d.original_id = $2::text::`+
		o.IDType+o.Collate()+` LIMIT 2`), source)
	var found []record.DeadLetterWhole
	err = s.db.Tx(ctx, db.Reading, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, text, of, id)
		if err == nil {
			found, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (d record.DeadLetterWhole, err error) {
				return d, scanDead(&d.DeadLetter, row, &d.Payload, &d.Headers)
			})
		}
		return err
	})
	switch {
	case err == nil && len(found) == 0:
		return nil, record.ErrNoDeadLetter
	case err == nil && len(found) > 1:
		return nil, s.db.NeedOne()
	case err != nil:
		return nil, fmt.Errorf("read the dead letter: %w", err)
	}
	d := found[0]
	if d.EditedAt != nil {
		d.Edits, err = s.edits(ctx, o, d.Source, id)
	}
	if err != nil {
		return nil, fmt.Errorf("read the dead letter: %w", err)
	}
	return &d, nil
}

// payloadBytes is the payload of a dead letter d as bytes.
func payloadBytes(o *db.Table) string {
	if o.PayloadType == "bytea" {
		return `d.payload`
	}
	return db.ToBytes("d.payload::text")
}
