package upkeep

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
)

var pruning = db.Limits{Lock: mirroring.Lock, Statement: 10 * time.Second, Commit: db.Relaxed}

// oldBatchesSQL gives batches that are older than the retention and lie wholly below the confirmed LSN: the slot does
// not deliver their events again, so no one will look them up for that, unless the server crashes: its slots go back to
// the last checkpoint's then, and the retention is to be longer than that. What is to be marked or deleted is so first:
// what is pruned would be forgotten there.
const oldBatchesSQL = `SELECT batch, size, ids FROM (
 SELECT batch, size, ids, sum(size) OVER (ORDER BY batch) AS total FROM (
  SELECT batch, size, ids` + head + bounded + `(mirrored OR NOT $6) AND (deleted OR NOT $7) AND ` + finished + `
   AND published_at < now() - $4 * interval '1 microsecond' AND wal_lsn <= (SELECT confirmed FROM {state}
   WHERE slot = $5)
  ORDER BY batch LIMIT $3) b) b
WHERE total - size < $2`

// newest is the newest of the batches $3; writtenLater: the journal row j is of a later one, because another event used
// its id again. It takes both: rows of a restored dump have later transactions, and a clock can be set back.
const (
	newest = `newest AS MATERIALIZED (
 SELECT max(published_at) AS at, min(age(xid::xid)) AS age FROM {batch} WHERE source = $1 AND batch = ANY ($3))`
	writtenLater = `j.published_at > b.at AND age(j.xmin) < b.age`
)

// pruneSQL keeps the journal row of every outbox row that does not say by itself that it is published: its id goes into
// a new batch and is looked at again after another retention. What was there before the first start stays told apart:
// it is never to be deleted. An id that another event used again has a later batch.
const pruneSQL = `WITH ` + newest + `,
needed AS MATERIALIZED (
 SELECT o.{id} AS id FROM {outbox} o WHERE {ours} AND o.{id} = ANY ($2) AND NOT {published}),
gone AS (
 DELETE FROM {journal} j WHERE source = $1 AND event_id = ANY ($2)
 AND NOT EXISTS (SELECT FROM newest b WHERE ` + writtenLater + `)
 AND NOT EXISTS (SELECT 1 FROM needed n WHERE n.id{collate} = event_id)
 RETURNING 1),
again AS (
 INSERT INTO {batch} (source, size, ids, mirrored, deleted) SELECT $1, count(*), array_agg(id), true, baseline FROM (
  SELECT id, coalesce((SELECT j.topic = '' FROM {journal} j WHERE j.source = $1 AND j.event_id = n.id{collate}
  LIMIT 1), false) AS baseline FROM needed n) n
 GROUP BY baseline RETURNING size),
done AS (
 DELETE FROM {batch} WHERE source = $1 AND batch = ANY ($3))
SELECT count(*), coalesce((SELECT sum(size) FROM again), 0) < cardinality($2) FROM gone`

// pruneDroppedSQL is pruneSQL for a table that is gone: no row of it needs the journal.
const pruneDroppedSQL = `WITH ` + newest + `,
gone AS (
 DELETE FROM {journal} j WHERE source = $1 AND event_id = ANY ($2)
 AND NOT EXISTS (SELECT FROM newest b WHERE ` + writtenLater + `)
 RETURNING 1),
done AS (
 DELETE FROM {batch} WHERE source = $1 AND batch = ANY ($3))
SELECT count(*), true FROM gone`

// NothingToMark notes of an outbox whose table is gone that no more of its rows are to be marked or deleted, for some
// batches at a time. It says of how many.
func (s *Upkeep) NothingToMark(ctx context.Context) (batches int, err error) {
	err = s.db.Tx(ctx, pruning, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, s.db.Names.SQL(`UPDATE {batch} SET mirrored = true, deleted = true WHERE source = $1
 AND batch IN (SELECT batch FROM {batch} WHERE source = $1 AND NOT mirrored ORDER BY batch LIMIT $2)`), s.db.Source(),
			batchesPerStep)
		batches = int(tag.RowsAffected())
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("note that a table is gone: %w", err)
	}
	return batches, nil
}

// PruneDropped is [Upkeep.Prune] of an outbox whose table is gone.
func (s *Upkeep) PruneDropped(ctx context.Context, retention time.Duration, limit int) (rows int, more bool,
	err error) {
	return s.prune(ctx, retention, limit, false, false, pruneDroppedSQL)
}

// Prune removes about limit journal rows that are older than the retention and that nothing needs: their outbox rows
// are gone or say by themselves that they are published, and the slot cannot deliver them again. It says how many it
// removed, which may be none, and whether more are due. It never waits for a lock.
func (s *Upkeep) Prune(ctx context.Context, retention time.Duration, limit int) (rows int, more bool, err error) {
	o, err := s.db.Table(ctx)
	if err != nil {
		return 0, false, err
	}
	return s.prune(ctx, retention, limit, o.MarkSet != "", s.db.Deletes(), pruneSQL)
}

// prune does it by the statement given, for batches that are marked and deleted if they are to be.
func (s *Upkeep) prune(ctx context.Context, retention time.Duration, limit int, marked, deleted bool,
	text string) (rows int, more bool, err error) {
	o, source, err := s.db.TableAndSource(ctx)
	if err != nil {
		return 0, false, err
	}
	p := new(db.Params).Int4(source).Int8(int64(limit)).Int8(batchesPerStep).Int8(retention.Microseconds()).Text(
		s.db.Config.Slot)
	p.Boolean(marked).Boolean(deleted)
	b, err := s.nextBatches(ctx, s.db.SQL(o, oldBatchesSQL), p)
	if err != nil {
		return 0, false, fmt.Errorf("read the journal for pruning: %w", err)
	}
	if len(b.numbers) == 0 {
		return 0, false, nil
	}
	if rows, more, err = s.applyBatches(ctx, o, source, pruning, text, b); err != nil {
		return 0, false, fmt.Errorf("prune %d journal rows: %w", b.ids.n, err)
	}
	// What was all put back is due again after the retention, and until then others are.
	return rows, (more || retention >= time.Minute) && (b.ids.n >= limit || len(b.numbers) >= batchesPerStep), nil
}
