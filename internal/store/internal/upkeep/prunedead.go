package upkeep

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// oldDead are resolved dead letters that nothing needs any more. Until then their ids
// show a catch-up, the reconciler and a slot that goes back that these events are settled: an outbox row that is there
// and does not say by itself that it is published keeps its dead letter, unless the journal has the id. One that a
// catch-up read has no position in the WAL; a batch of the journal that was written later and is confirmed proves as
// much.
const oldDead = `d.source = $1 AND (d.replayed_at IS NOT NULL OR d.discarded_at IS NOT NULL)
 AND greatest(d.replayed_at, d.discarded_at) < now() - $3 * interval '1 microsecond'
 AND CASE WHEN d.from_stream THEN d.position_order < (SELECT confirmed - '0/0'::pg_lsn FROM {state} WHERE slot = $2)
  ELSE EXISTS (SELECT FROM {batch} b WHERE b.source = $1 AND b.published_at > d.dead_at
  AND b.wal_lsn <= (SELECT confirmed FROM {state} WHERE slot = $2)) END
 AND NOT EXISTS (SELECT FROM {parked} p WHERE p.source = $1 AND p.event_id = d.original_id)
 AND (EXISTS (SELECT FROM {journal} j WHERE j.source = $1 AND j.event_id = d.original_id)
  OR NOT EXISTS (SELECT FROM {outbox} o WHERE {ours} AND o.{id} = d.original_id{collate_own} AND NOT {published}))`

const pruneDeadSQL = `WITH gone AS (
 DELETE FROM {dlq} WHERE id = ANY (ARRAY(SELECT d.id FROM {dlq} d WHERE ` + oldDead +
	` ORDER BY d.id LIMIT $4 FOR UPDATE OF d SKIP LOCKED)) RETURNING original_id, edited_at),
edits AS (
 DELETE FROM {edit} WHERE source = $1
 AND event_id = ANY (ARRAY(SELECT original_id FROM gone WHERE edited_at IS NOT NULL)))
SELECT count(*) FROM gone`

// PruneDead removes up to limit dead letters that were replayed or discarded longer ago than the retention and that
// nothing needs, and says how many, and whether there may be more. It waits for no row.
func (s *Upkeep) PruneDead(ctx context.Context, retention time.Duration, limit int) (rows int, more bool, err error) {
	o, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		err = s.db.One(ctx, pruning, func(row pgx.Row) error { return row.Scan(&rows) }, s.db.SQL(o, pruneDeadSQL), source,
			s.db.Config.Slot, retention.Microseconds(), limit)
	}
	if err != nil {
		return 0, false, fmt.Errorf("prune dead letters: %w", err)
	}
	return rows, rows == limit, nil
}

// PruneRequests removes up to limit finished requests that are older than that and have no event on its way any more: a
// replayed event's dead letter is closed by what its request says. It says how many, and whether there may be more.
func (s *Upkeep) PruneRequests(ctx context.Context, older time.Duration, limit int) (rows int, more bool, err error) {
	err = s.db.One(ctx, pruning, func(row pgx.Row) error { return row.Scan(&rows) }, s.db.Names.SQL(`WITH gone AS (
 DELETE FROM {request} WHERE id = ANY (ARRAY(SELECT r.id FROM {request} r WHERE r.slot = $1
 AND r.finished_at < now() - $2 * interval '1 microsecond'
  AND NOT EXISTS (SELECT FROM {parked} p WHERE p.replay = r.id) ORDER BY r.id LIMIT $3)) RETURNING 1)
SELECT count(*) FROM gone`), s.db.Config.Slot, older.Microseconds(), limit)
	if err != nil {
		return 0, false, fmt.Errorf("prune requests: %w", err)
	}
	return rows, rows == limit, nil
}

// Cleanable counts what DeleteStep, Prune and PruneDead would remove, the first two by what the journal's batches say:
// rows that are gone already, locked or needed are among them. It changes nothing.
func (s *Upkeep) Cleanable(ctx context.Context, outbox, journal, dead time.Duration) (c record.Cleanable, err error) {
	o, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		const confirmed = ` AND wal_lsn <= (SELECT confirmed FROM {state} WHERE slot = $2)`
		err = s.db.One(ctx, db.Scanning, func(row pgx.Row) error {
			return row.Scan(&c.Outbox, &c.Journal, &c.Dead)
		}, s.db.SQL(o, `SELECT
 (SELECT coalesce(sum(size), 0)::bigint FROM {batch} WHERE source = $1 AND $6 AND NOT deleted AND (mirrored OR NOT $7)
 AND `+finished+confirmed+`
   AND published_at <= now() - $4 * interval '1 microsecond'),
 (SELECT coalesce(sum(size), 0)::bigint FROM {batch} WHERE source = $1 AND (mirrored OR NOT $7)
 AND (deleted OR NOT $6) AND `+finished+confirmed+`
   AND published_at < now() - $5 * interval '1 microsecond'),
 (SELECT count(*) FROM {dlq} d WHERE $8 AND `+oldDead+`)`),
			source, s.db.Config.Slot, dead.Microseconds(), outbox.Microseconds(), journal.Microseconds(), s.db.Deletes(),
			o.MarkSet != "", dead > 0)
	}
	if err != nil {
		return record.Cleanable{}, fmt.Errorf("count what could be cleaned up: %w", err)
	}
	return c, nil
}

// ExplainPruneDead is Postgres's plan for what PruneDead runs.
func ExplainPruneDead(ctx context.Context, d *db.DB) (string, error) {
	p := new(db.Params).Int4(d.Source()).Text(d.Config.Slot).Int8(0).Int8(100)
	return d.Explain(ctx, db.Scanning, pruneDeadSQL, p)
}
