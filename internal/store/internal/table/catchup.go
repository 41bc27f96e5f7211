package table

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// snapshotting and the like run over the whole outbox once: no statement_timeout, and durable, because the phase is.
var snapshotting = db.Limits{Lock: db.Scanning.Lock, Commit: db.Durable}

// CountUnrecorded counts the rows that no journal row, parked event or dead letter knows and that do not say themselves
// that they are published, up to the limit (0 = no limit). It reads the outbox from the start: a large one takes as
// long as a full scan. A slot that is not registered yet has recorded nothing.
func (s *Reader) CountUnrecorded(ctx context.Context, limit int64) (int64, error) {
	o, err := s.db.Table(ctx)
	if err != nil {
		return 0, err
	}
	if _, err := s.db.State(ctx); err != nil {
		return 0, err
	}
	source := s.db.Source() // 0 is no one's number
	var count int64
	err = s.db.One(ctx, db.Scanning, func(row pgx.Row) error { return row.Scan(&count) },
		s.db.SQL(o, `SELECT count(*) FROM (SELECT 1 FROM {outbox} o WHERE {ours} AND NOT {published} AND {unrecorded}
 LIMIT NULLIF($2::bigint, 0)) u`),
		source, limit)
	if err != nil {
		return 0, fmt.Errorf("count unrecorded rows: %w", err)
	}
	return count, nil
}

// SnapshotCatchUp writes the ids of all unrecorded rows, numbered in the order of outbox.order_by, to a table of the
// relay, and sets CatchUpReady and Era in the same transaction. It is one statement and so one snapshot: a row is in it
// or comes by the stream, given that the slot exists and the barrier of package lease was passed. A list of an earlier
// call is replaced.
//
// Positions of an earlier era say nothing beside those of the new one, so parked events, and dead letters that may be
// replayed, get places in the same list: each at its row, or right behind the event that was in front of it in its lane
// where that is further back or its row is gone. So none changes places with another one of its lane, and a row that
// comes again goes before those that are parked behind it. No event may be in flight: it would be parked later at a
// place of the earlier era. ErrFenced after a takeover by another.
func (s *Reader) SnapshotCatchUp(ctx context.Context) (rows int64, err error) {
	o, source, err := s.db.TableAndSource(ctx)
	if err != nil {
		return 0, err
	}
	err = s.db.Fenced(ctx, snapshotting, func(tx pgx.Tx) error {
		// No one parks or replays in the meantime: what the statement does not see would keep its place.
		if _, err := tx.Exec(ctx, s.db.Names.SQL(`SELECT FROM {epoch} WHERE slot = $1 FOR NO KEY UPDATE`),
			s.db.Config.Slot); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, s.db.SQL(o, `DELETE FROM {catch_up} WHERE source = $1`), source); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, s.db.SQL(o, snapshotSQL), source, s.db.Epoch())
		if err != nil {
			return err
		}
		rows = tag.RowsAffected()
		return s.noteListed(ctx, tx)
	})
	if err != nil {
		return 0, fmt.Errorf("list the rows to catch up: %w", err)
	}
	return rows, nil
}

// ListsReady notes for the slot as a whole that the lists of all of its outboxes are made, as [Reader.SnapshotCatchUp]
// does for one. Fenced.
func (s *Reader) ListsReady(ctx context.Context) error {
	err := s.db.Fenced(ctx, db.Writing, func(tx pgx.Tx) error { return s.noteListed(ctx, tx) })
	if err != nil {
		return fmt.Errorf("note that the rows to catch up are listed: %w", err)
	}
	return nil
}

func (s *Reader) noteListed(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, s.db.Names.SQL(`UPDATE {state} SET catch_up_ready = true, era = $2,
 swept_at = clock_timestamp(), updated_at = now() WHERE slot = $1`), s.db.StateKey(), s.db.Epoch())
	return err
}

// snapshotSQL: aside are the events that have a place already, by lane; listed are the rows of the outbox that are to
// come, and those that the former have in it; placed says behind which of these each of them belongs. An event without
// a key has no order to keep; all of them are one lane here.
const snapshotSQL = `WITH aside AS MATERIALIZED (
 SELECT event_id AS id, topic, key, epoch, from_stream, position_order, position_index FROM {parked} WHERE source = $1
 UNION ALL
 SELECT original_id, topic, key, epoch, from_stream, position_order, position_index FROM {dlq} d
 WHERE source = $1 AND replayed_at IS NULL AND discarded_at IS NULL AND NOT
 EXISTS (SELECT FROM {parked} r WHERE r.source = $1 AND r.event_id = d.original_id)),
listed AS MATERIALIZED (
 SELECT {oid} AS id, row_number() OVER (ORDER BY {order}
 ) AS n, {oid} IN (SELECT id FROM aside) AS aside FROM {outbox} o WHERE {ours} AND NOT {published}
  AND NOT EXISTS (SELECT FROM {journal} r WHERE r.source = $1 AND r.event_id = {oid} AND NOT {of_another})
  AND NOT EXISTS (SELECT FROM {dlq} r WHERE r.source = $1 AND r.original_id = {oid}
  AND (r.replayed_at IS NOT NULL OR r.discarded_at IS NOT NULL))),
placed AS (
 SELECT id, n AS behind, 0 AS nth, false AS aside FROM listed WHERE NOT aside
 UNION ALL
 SELECT a.id, max(coalesce(l.n, 0)) OVER lane, row_number() OVER lane, true FROM aside a LEFT
 JOIN listed l ON l.id = a.id
 WINDOW lane AS (PARTITION BY a.topic, a.key ORDER BY a.epoch, a.from_stream, a.position_order,
 a.position_index ROWS UNBOUNDED PRECEDING)),
numbered AS MATERIALIZED (SELECT id, aside, row_number() OVER (ORDER BY behind, nth) AS n FROM placed),
parked AS (
 UPDATE {parked} p SET epoch = $2, from_stream = false, position_order = n, position_index = 0 FROM numbered a
 WHERE aside AND p.source = $1 AND p.event_id = a.id), dead AS (
 UPDATE {dlq} d SET epoch = $2, from_stream = false, position_order = n, position_index = 0 FROM numbered a
 WHERE aside AND d.source = $1 AND d.original_id = a.id)
INSERT INTO {catch_up} (source, row_number, event_id) SELECT $1, n, id FROM numbered WHERE NOT aside`

// reusedAsideSQL finds rows whose ids are parked, or open dead letters, of events of before, and those whose ids are
// journaled of rows that the last catch-up had listed before they were made: these waited for their broker.
const reusedAsideSQL = `SELECT a.topic, a.id::text FROM (
 SELECT event_id AS id, topic, parked_at AS at FROM {parked} WHERE source = $1 UNION ALL
 SELECT original_id, topic, dead_at FROM {dlq} WHERE source = $1) a
WHERE EXISTS (SELECT FROM {outbox} o WHERE {ours} AND o.{id} = a.id{collate_own} AND NOT {published} AND {made_after}
 AND NOT EXISTS (SELECT FROM {journal} r WHERE r.source = $1 AND r.event_id = {oid} AND NOT {of_another}))
UNION ALL SELECT r.topic, r.event_id::text FROM {journal} r JOIN {state} t ON t.source = r.source
WHERE r.source = $1 AND r.stream_mark < 0 AND r.published_at > t.swept_at AND EXISTS (SELECT FROM {outbox} o
 WHERE {ours} AND o.{id} = r.event_id{collate_own} AND NOT {published} AND {made_since} AND NOT {of_another})
ORDER BY 1, 2 LIMIT $2`

// ReusedAside lists rows that a catch-up is about to leave out because their ids are recorded, though they say that
// they were made after the events that had them: they are other events, or their times are wrong. It is asked before
// [Reader.SnapshotCatchUp] forgets when the list before was made.
func (s *Reader) ReusedAside(ctx context.Context, limit int) (found []record.Aside, err error) {
	o, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		text := s.db.SQL(o, strings.NewReplacer("{made_after}", s.db.MadeAfter(o, "a.at"),
			"{made_since}", s.db.MadeAfter(o, "t.swept_at")).Replace(reusedAsideSQL))
		err = s.db.Tx(ctx, snapshotting, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, text, source, limit)
			if err == nil {
				found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[record.Aside])
			}
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("look for rows with recorded ids: %w", err)
	}
	return found, nil
}

// FinishCatchUp ends the phase: the stream is all there is from now on. It is an error if the list of rows is void by
// now, because the slot was lost, or the stream has left rows out, since it was made. ErrFenced after a takeover by
// another.
func (s *Reader) FinishCatchUp(ctx context.Context) error {
	o, source, err := s.db.TableAndSource(ctx)
	if err != nil {
		return err
	}
	err = s.db.Fenced(ctx, snapshotting, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, s.db.SQL(o, `DELETE FROM {catch_up} WHERE source = $1`), source); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, s.db.SQL(o,
			`UPDATE {state} SET phase = 'stream', catch_up_ready = false, catch_up_late = false, updated_at = now()
WHERE slot = $1 AND catch_up_ready`), s.db.StateKey())
		if err == nil && tag.RowsAffected() == 0 {
			err = errors.New("its list of rows is void: the slot was lost, or the stream has left rows out, since it was made")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("finish the catch-up: %w", err)
	}
	return nil
}

// baselineBatch is the number of ids in one batch row of a baseline.
const baselineBatch = 1000

// baselineSQL makes journal rows of those whose ids the journal holds, and discarded dead letters of the others, which
// are recorded by that.
var baselineSQL = fmt.Sprintf(`WITH rows AS MATERIALIZED (
 SELECT o.{id} AS id, row_number() OVER () AS n FROM {outbox} o WHERE {ours} AND NOT {published} AND {unrecorded}),
journaled AS (
 INSERT INTO {journal} (source, event_id, topic, partition, "offset")
 SELECT $1, id, '', -1, -1 FROM rows WHERE {holds} ON CONFLICT DO NOTHING),
batches AS (
 INSERT INTO {batch} (source, size, ids, mirrored, deleted)
 SELECT $1, count(*), array_agg(id), true, true FROM rows WHERE {holds} GROUP BY n / $2),
dead AS (
 INSERT INTO {dlq} (source, original_id, topic, position, epoch, from_stream, position_order, position_index, attempts,
  error_class, error_code, last_error, discarded_at, resolved_by, note)
 SELECT $1, id, '', 'table/0/' || n, 0, false, n, 0, 0, 'permanent', 'INVALID_ID',
  'the journal holds ids of at most %d bytes', now(), 'outbox.catch_up: false', 'there before the first start'
 FROM rows WHERE NOT {holds} ON CONFLICT DO NOTHING)
SELECT count(*) FROM rows`, outbox.MaxID)

// journalHolds is a condition on an id.
func journalHolds(o *db.Table) string {
	if !o.TextIDs() {
		return "true"
	}
	return fmt.Sprintf("octet_length(id) <= %d", outbox.MaxID)
}

// SetBaseline makes the rows that are in the outbox now count as published (outbox.catch_up: false): they get journal
// rows without topic, partition and offset. It says how many; a second call for the same state does nothing.
//
// It must be committed before the slot is created. A row that commits between the two is then neither in the baseline
// nor in the stream and is found by the catch-up that follows; the other way round a row could be in both, and would
// never be published. There is no cheaper exact way: an upper bound on the id or on created_at would also hide rows
// that commit later with a lower value, and xmin changes when the application updates a row.
func (s *Reader) SetBaseline(ctx context.Context) (rows int64, err error) {
	o, source, err := s.db.TableAndSource(ctx)
	if err != nil {
		return 0, err
	}
	err = s.db.Tx(ctx, snapshotting, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, s.db.SQL(o,
			`UPDATE {state} SET baseline_at = now() WHERE slot = $1 AND baseline_at IS NULL`), s.db.StateKey())
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		return tx.QueryRow(ctx, s.db.SQL(o, strings.ReplaceAll(baselineSQL, "{holds}", journalHolds(o))),
			source, int64(baselineBatch)).Scan(&rows)
	})
	if err != nil {
		return 0, fmt.Errorf("set the baseline: %w", err)
	}
	return rows, nil
}
