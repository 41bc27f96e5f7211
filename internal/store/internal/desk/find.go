package desk

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// findSQL is one statement, so that an event that moves on in the meantime is seen before or after its move, never at
// neither place. An event has one row in each table at most for each source; a later source's is the newer one.
const findSQL = `SELECT a.id::{idtype}::text,
 (SELECT to_jsonb(x) FROM (SELECT {row}, {published} AS marked FROM {outbox} o
 WHERE {ours} AND o.{id} = a.id::{idtype}{collate_own} LIMIT 1) x),
 (SELECT to_jsonb(x) FROM (SELECT j.topic, CASE WHEN j.partition >= 0 THEN j.partition END AS partition,
   CASE WHEN j."offset" >= 0 THEN j."offset" END AS "offset", j.published_at AS at, EXISTS (SELECT FROM {outbox} o
    WHERE {ours} AND o.{id} = a.id::{idtype}{collate_own} AND NOT {published} AND EXISTS (SELECT FROM {journal} r
     WHERE r.source = j.source AND r.event_id = j.event_id AND {of_another})) AS former
  FROM {journal} j WHERE j.source = ANY ($1) AND j.event_id = a.id::{idtype}{collate} ORDER BY j.published_at
  LIMIT 1) x),
 (SELECT to_jsonb(x) FROM (SELECT p.topic, p.aggregate_type, p.aggregate_id, p.event_type, p.retry_count AS attempts,
   p.error_class AS class, coalesce(p.last_error, '') AS last_error, p.last_error_at, p.parked_at,
   NULLIF(p.next_retry_at, 'infinity') AS next_retry_at, coalesce(p.next_retry_at = 'infinity', false) AS waits,
   p.replay IS NOT NULL AS replay, h.event_id AS behind, coalesce(h.before, 0) AS before
  FROM {parked} p LEFT JOIN LATERAL (
   SELECT q.event_id::text AS event_id, count(*) OVER () AS before FROM {parked} q
   WHERE q.source = p.source AND q.topic = p.topic AND md5(q.key) = md5(p.key)
    AND (q.epoch, q.from_stream, q.position_order, q.position_index) < (p.epoch, p.from_stream, p.position_order,
    p.position_index)
   ORDER BY q.epoch, q.from_stream, q.position_order, q.position_index LIMIT 1) h ON true
  WHERE p.source = ANY ($1) AND p.event_id = a.id::{idtype}{collate} ORDER BY p.parked_at DESC LIMIT 1) x),
 (SELECT to_jsonb(x) FROM (SELECT d.topic, d.aggregate_type, d.aggregate_id, d.event_type, d.attempts,
 d.error_class AS class,
   d.error_code AS code, d.last_error, d.dead_at, d.replayed_at, d.discarded_at, d.resolved_by, d.note, d.edited_at,
   d.edited_by
  FROM {dlq} d WHERE d.source = ANY ($1) AND d.original_id = a.id::{idtype}{collate} ORDER BY d.dead_at DESC LIMIT 1) x)
FROM unnest($2::text[]) WITH ORDINALITY AS a(id, place) ORDER BY a.place`

// Find tells what the database knows of each event, in the order of the ids, whether a relay runs or not. A handful of
// index probes for each. ErrFilter: an id is of another type than the outbox's.
func (s *Desk) Find(ctx context.Context, ids []string) ([]record.Found, error) {
	o, err := s.outbox(ctx)
	if err != nil {
		return nil, err
	}
	if err := db.CheckIDs(o, ids); err != nil {
		return nil, err
	}
	var found []record.Found
	err = s.db.Tx(ctx, db.Reading, func(tx pgx.Tx) error {
		sources, err := s.db.Sources(ctx, tx, o)
		if err != nil {
			return err
		}
		rows, err := tx.Query(ctx, s.findText(o), sources, ids)
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, scanFound)
		for i := range found {
			found[i].Outbox = s.db.MemberName()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for %d events: %w", len(ids), err)
	}
	return found, nil
}

// outbox is the table that is asked for rows.
func (s *Desk) outbox(ctx context.Context) (*db.Table, error) {
	if err := s.db.NeedOne(); err != nil {
		return nil, err
	}
	return s.db.OwnTable(ctx)
}

func (s *Desk) findText(o *db.Table) string {
	c := s.db.Config.Columns
	var columns []string
	for _, column := range [][2]string{{db.Text(c.AggregateType, c.TypeParts), "aggregate_type"},
		{db.Text(c.AggregateID, c.IDParts), "aggregate_id"},
		{db.Text(c.EventType, nil), "event_type"}, {s.createdText(o), "created_at"}} {
		columns = append(columns, column[0]+" AS "+column[1])
	}
	text := strings.NewReplacer("{row}", strings.Join(columns, ", "), "{idtype}", o.IDType).Replace(findSQL)
	return s.db.SQL(o, text)
}

// createdText is created_at as text, in UTC; the row itself may tell it in the database's zone.
func (s *Desk) createdText(o *db.Table) string {
	if s.db.Config.Columns.CreatedAt == "" {
		return db.Text("", nil)
	}
	return s.db.Created(o) + "::text"
}

func scanFound(row pgx.CollectableRow) (f record.Found, err error) {
	var outbox, journal, parked, dead []byte
	if err = row.Scan(&f.ID, &outbox, &journal, &parked, &dead); err != nil {
		return f, err
	}
	for _, part := range []struct {
		text []byte
		into any
	}{{outbox, &f.Row}, {journal, &f.Published}, {parked, &f.Parked}, {dead, &f.Dead}} {
		if part.text == nil {
			continue
		}
		if err := json.Unmarshal(part.text, part.into); err != nil {
			return f, fmt.Errorf("read what is known of %s: %w", f.ID, err)
		}
	}
	f.State = stateOf(&f)
	return f, nil
}

func stateOf(f *record.Found) string {
	switch {
	case f.Published != nil && f.Published.Former && f.Parked == nil && f.Dead == nil:
		return record.FoundWaiting
	case f.Published != nil && f.Published.Topic == "":
		return record.FoundBaseline
	case f.Published != nil:
		return record.FoundPublished
	case f.Parked != nil:
		return record.FoundParked
	case f.Dead != nil && f.Dead.DiscardedAt != nil:
		return record.FoundDiscarded
	case f.Dead != nil && f.Dead.ReplayedAt != nil:
		return record.FoundPublished // and its journal row is pruned
	case f.Dead != nil:
		return record.FoundDead
	case f.Row != nil && f.Row.Marked:
		return record.FoundMarked
	case f.Row != nil:
		return record.FoundWaiting
	}
	return record.FoundNothing
}

// alikeSQL finds what rows have in common with parked events and dead letters, the newest rows first.
const alikeSQL = `SELECT id FROM (
 SELECT o.{id}::text AS id, row_number() OVER (ORDER BY {order}) AS place FROM {outbox} o WHERE {ours} AND {aggregate}
 UNION ALL (SELECT p.event_id::text, NULL FROM {parked} p WHERE p.source = ANY ($4) AND {like p} LIMIT $3)
 UNION ALL (SELECT d.original_id::text, NULL FROM {dlq} d WHERE d.source = ANY ($4) AND {like d} LIMIT $3)
) x GROUP BY id ORDER BY max(place) DESC NULLS FIRST, id LIMIT $3`

// OfAggregate lists the ids of an aggregate's events: at most limit, those in the table whose created_at is younger
// than since, by outbox.order_by from the newest on, and what is parked or dead whether the table has it or not.
// Without an index on the aggregate's columns it reads the table. Where there is no aggregate type, kind is "".
// ErrFilter: the configuration names no columns of the aggregate's id.
func (s *Desk) OfAggregate(ctx context.Context, kind, id string, since time.Duration, limit int) ([]string, error) {
	o, err := s.outbox(ctx)
	if err != nil {
		return nil, err
	}
	c := s.db.Config.Columns
	if c.AggregateID == "" && c.IDParts == nil {
		return nil, fmt.Errorf("%w: outbox.columns.aggregate_id is empty, so each event is an aggregate of its own: look "+
			"for its id", record.ErrFilter)
	}
	where := db.Text(c.AggregateType, c.TypeParts) + " = $1 AND " + db.Text(c.AggregateID, c.IDParts) + " = $2"
	if c.AggregateType == "" && c.TypeParts == nil {
		where = "$1 = '' AND " + db.Text(c.AggregateID, c.IDParts) + " = $2"
	}
	return s.alike(ctx, o, where, "coalesce(%[1]s.aggregate_type, '') = $1 AND %[1]s.aggregate_id = $2", kind, id, since,
		limit)
}

// OfKey lists the ids of a message key's events, as [Desk.OfAggregate] does: what is parked or dead by its key, and
// rows by the id of their aggregate, of whichever type, which is the key unless the configuration has another one.
func (s *Desk) OfKey(ctx context.Context, key string, since time.Duration, limit int) ([]string, error) {
	o, err := s.outbox(ctx)
	if err != nil {
		return nil, err
	}
	if err := (record.Filter{Key: &key}).CheckTexts(); err != nil {
		return nil, err
	}
	where := "$1 = '' AND false AND $2 = ''"
	if c := s.db.Config.Columns; c.AggregateID != "" || c.IDParts != nil {
		where = "$1 = '' AND " + db.Text(c.AggregateID, c.IDParts) + " = $2"
	}
	return s.alike(ctx, o, where,
		"md5(%[1]s.key) = md5("+db.ToBytes("$2")+") AND %[1]s.key = "+db.ToBytes("$2"), "", key, since, limit)
}

// alike lists ids of rows where a condition holds, and of parked events and dead letters where one on their columns
// does; $1 is the kind, $2 the id.
func (s *Desk) alike(ctx context.Context, o *db.Table, where, like, kind, id string, since time.Duration,
	limit int) (ids []string, err error) {
	c := s.db.Config.Columns
	if since > 0 {
		if c.CreatedAt == "" {
			return nil, fmt.Errorf("%w: the configuration names no created_at to look since", record.ErrFilter)
		}
		where += " AND o." + db.Quote(c.CreatedAt) + " >= " +
			o.AsCreated(fmt.Sprintf("(now() - %d * interval '1 microsecond')", since.Microseconds()))
	}
	err = s.db.Tx(ctx, db.Scanning, func(tx pgx.Tx) error {
		sources, err := s.db.Sources(ctx, tx, o)
		if err != nil {
			return err
		}
		text := s.db.SQL(o, strings.NewReplacer("{aggregate}", where, "{like p}", fmt.Sprintf(like, "p"), "{like d}",
			fmt.Sprintf(like, "d")).Replace(alikeSQL))
		rows, err := tx.Query(ctx, text, kind, id, limit, sources)
		if err == nil {
			ids, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for events of %s: %w", strings.TrimSpace(kind+" "+id), err)
	}
	return ids, nil
}
