package upkeep

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
)

// failures is one kind of failure that outbox rows are to show. What is shown is derived from the relay's own rows, so
// nothing is forgotten by a crash: each of them says in shown_at which of its failures the outbox row has.
//
// A row is written only if it is, when it is locked, as the statement's snapshot saw it, in which its event is neither
// published nor journaled. So a mark is never overwritten: one that was made before is seen, one that is made in the
// meantime has changed the row, and one that comes later has the last word.
type failures struct {
	table string // of the relay's own
	id    string // its column
	at    string // its column with the time of the failure
	due   string // a query for what is to be shown: id, at, writer, last_error, attempts, error_class
	set   func(o *db.Table) string
	key   string
}

var dead = failures{
	table: "{dlq}", id: "original_id", at: "dead_at", key: "outbox.dead_set",
	set: func(o *db.Table) string { return o.DeadSet },
	// A dead letter that is replayed is a parked event until it is published or dies again.
	due: `SELECT f.original_id AS id, f.dead_at AS at, f.xmin AS writer, f.last_error, f.attempts, f.error_class
 FROM {dlq} f WHERE f.source = $1 AND f.replayed_at IS NULL AND f.shown_at IS DISTINCT FROM f.dead_at
 AND NOT EXISTS (SELECT FROM {parked} p WHERE p.source = f.source AND p.event_id = f.original_id)`,
}

var retried = failures{
	table: "{parked}", id: "event_id", at: "last_error_at", key: "outbox.retry_set",
	set: func(o *db.Table) string { return o.RetrySet },
	// Only what has failed itself, or was dead: not what waits behind it, and not all that a topic in trouble parks.
	due: `SELECT f.event_id AS id, f.last_error_at AS at, f.xmin AS writer, f.last_error,
 f.retry_count + coalesce(d.attempts, 0) AS attempts, f.error_class
 FROM {parked} f LEFT JOIN {dlq} d ON d.source = f.source AND d.original_id = f.event_id
 WHERE f.source = $1 AND f.next_retry_at IS NOT NULL AND (f.retry_count > 0 OR d.id IS NOT NULL)
 AND f.shown_at IS DISTINCT FROM f.last_error_at`,
}

// unjournaled: another relay that had the slot for a while may have published it.
const unjournaled = ` AND NOT EXISTS (SELECT FROM {journal} j WHERE j.source = f.source AND j.event_id = f.%id)`

const dueFailuresSQL = `SELECT id::text FROM (%due%unjournaled) f ORDER BY at, id OFFSET $2 LIMIT $3`

// showSQL writes failures into the rows that it can lock at once. An event whose row is not there is done with once
// the transactions that were open when its failure was written are over: before, the row may not be visible yet.
const showSQL = `WITH due AS MATERIALIZED (%due%unjournaled AND f.%id = ANY ($2::text[]::%type[]{collate})),
seen AS MATERIALIZED (
 SELECT o.{id} AS id, o.ctid AS place, o.tableoid AS part, {published} AS published FROM {outbox} o
 WHERE {ours} AND o.{id} = ANY (ARRAY(SELECT id FROM due){collate_own})),
locked AS MATERIALIZED (
 SELECT s.id, s.place, s.part FROM {outbox} o
 JOIN seen s ON o.{id} = s.id{collate_own} AND o.ctid = s.place AND o.tableoid = s.part
 WHERE {ours} AND NOT s.published FOR NO KEY UPDATE OF o SKIP LOCKED),
shown AS (
 UPDATE {outbox} SET %set
 FROM (SELECT l.id AS cdc_relay_id, l.place AS cdc_relay_place, l.part AS cdc_relay_part,
  d.last_error AS cdc_relay_last_error, d.attempts AS cdc_relay_attempts, d.error_class AS cdc_relay_class
  FROM locked l JOIN due d ON d.id = l.id) AS %row
 WHERE {ours} AND {outbox}.{id} = %row.cdc_relay_id{collate_own} AND {outbox}.ctid = %row.cdc_relay_place
 AND {outbox}.tableoid = %row.cdc_relay_part
 RETURNING {published} AS published)
SELECT d.id::text, (extract(epoch FROM d.at) * 1000000)::bigint,
 NOT EXISTS (SELECT FROM seen s WHERE s.id = d.id AND NOT s.published
  AND NOT EXISTS (SELECT FROM locked l WHERE l.place = s.place AND l.part = s.part))
 AND (EXISTS (SELECT FROM seen s WHERE s.id = d.id)
  OR NOT age(d.writer) BETWEEN 0 AND age(pg_snapshot_xmin(pg_current_snapshot())::xid)),
 EXISTS (SELECT FROM shown WHERE published)
FROM due d WHERE ` + db.InRolesPath

// noteShownSQL takes a note of what was shown, unless the event has failed again in the meantime. It waits for no row.
const noteShownSQL = `UPDATE %table SET shown_at = %at WHERE ctid = ANY (ARRAY(
 SELECT f.ctid FROM %table f JOIN unnest($2::text[]::%type[], $3::bigint[]) AS u(id, at)
 ON f.%id = u.id{collate} AND (extract(epoch FROM f.%at) * 1000000)::bigint = u.at
 WHERE f.source = $1 FOR NO KEY UPDATE OF f SKIP LOCKED))`

func (f failures) sql(s *db.DB, o *db.Table, text string) string {
	return s.SQL(o, strings.NewReplacer("%due", f.due, "%unjournaled", strings.ReplaceAll(unjournaled, "%id", f.id),
		"%table", f.table, "%id", f.id, "%at", f.at, "%type", o.IDType, "%row", db.FailureRow,
		"%set", f.set(o)).Replace(text))
}

// ShowDead writes into the outbox rows of up to limit dead letters what outbox.dead_set says, the oldest that are not
// shown yet first, those in front apart that are to be skipped. due is how many it looked at, left how many of them it
// could not show: they are locked by others or have changed since, and a later call finds them. It never waits for a
// row; a table that is locked is an error for which [record.IsTransient] is true. Rows that say that they are published
// stay as they are.
func (s *Upkeep) ShowDead(ctx context.Context, skip, limit int) (due, left int, err error) {
	return s.show(ctx, dead, skip, limit)
}

// ShowRetried does the same, by outbox.retry_set, for events that have failed and are tried again, and for dead letters
// that are replayed.
func (s *Upkeep) ShowRetried(ctx context.Context, skip, limit int) (due, left int, err error) {
	return s.show(ctx, retried, skip, limit)
}

func (s *Upkeep) show(ctx context.Context, f failures, skip, limit int) (due, left int, err error) {
	o, source, err := s.db.TableAndSource(ctx)
	if err != nil || f.set(o) == "" {
		return 0, 0, err
	}
	var ids []string
	p := new(db.Params).Int4(source).Int8(int64(skip)).Int8(int64(limit))
	err = s.db.Send(ctx, db.Reading, f.sql(s.db, o, dueFailuresSQL), p, nil, func(row [][]byte) error {
		ids = append(ids, string(row[0]))
		return nil
	})
	if err != nil {
		return 0, 0, fmt.Errorf("look for failures to show in the outbox: %w", err)
	}
	if len(ids) == 0 {
		return 0, 0, nil
	}
	done, err := s.showThese(ctx, f, o, source, ids)
	if err != nil {
		return len(ids), len(ids), fmt.Errorf("show %d failures in the outbox, by %s: %w", len(ids), f.key, err)
	}
	return len(ids), len(ids) - done, nil
}

// showThese writes the rows, and takes the notes in a transaction of its own: the relay's rows are locked for an
// instant and never while a row of the outbox is, whose triggers may take long. What a crash keeps from being noted is
// shown again.
func (s *Upkeep) showThese(ctx context.Context, f failures, o *db.Table, source int32,
	ids []string) (done int, err error) {
	var shown []string
	var times []int64
	err = s.db.Tx(ctx, marking(o), func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, f.sql(s.db, o, showSQL), source, ids)
		if err != nil {
			return err
		}
		shown, times = nil, nil
		var id string
		var at int64
		var over, published bool
		_, err = pgx.ForEachRow(rows, []any{&id, &at, &over, &published}, func() error {
			if over {
				shown, times = append(shown, id), append(times, at)
			}
			return nil
		})
		if err == nil && published { // and nothing is written
			err = fmt.Errorf("rows would count as published by outbox.published_when (%s): correct one of the two",
				strings.TrimSpace(o.PublishedWhen))
		}
		return err
	})
	if err != nil || len(shown) == 0 {
		return 0, err
	}
	err = s.db.Tx(ctx, mirroring, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, f.sql(s.db, o, noteShownSQL), source, shown, times)
		return err
	})
	return len(shown), err
}
