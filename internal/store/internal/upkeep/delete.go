package upkeep

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// deletableSQL gives batches whose rows may be deleted: old enough, marked if they are to be ($6), and wholly below the
// confirmed LSN as it is persisted, so that the row outlives every doubt about its event: a slot that goes back finds
// it still there.
const deletableSQL = `SELECT batch, size, ids FROM (
 SELECT batch, size, ids, sum(size) OVER (ORDER BY batch) AS total FROM (
  SELECT batch, size, ids` + head + `AND NOT deleted` + bounded + `(mirrored OR NOT $6) AND ` + finished + `
   AND published_at <= now() - $4 * interval '1 microsecond' AND wal_lsn <= (SELECT confirmed FROM {state}
   WHERE slot = $5)
  ORDER BY batch LIMIT $3) b) b
WHERE total - size < $2`

// deleteSQL deletes what it can lock at once, and notes the rest as a new batch; see markSQL. Where rows are marked,
// one whose mark someone took away stays.
const deleteSQL = `WITH ` + newest + `,
locked AS MATERIALIZED (
 SELECT o.{id} AS id FROM {outbox} o WHERE {ours} AND o.{id} = ANY ($2) AND {said} FOR UPDATE SKIP LOCKED),
todo AS MATERIALIZED (
 SELECT o.{id} AS id FROM {outbox} o WHERE {ours} AND o.{id} = ANY (` + unlockedSQL + `) AND {said}),
gone AS (
 DELETE FROM {outbox} WHERE {ours} AND {id} = ANY (ARRAY(SELECT id FROM locked)) RETURNING 1),
again AS (
 INSERT INTO {batch} (source, size, ids) SELECT $1, count(*), array_agg(id)
 FROM (SELECT id FROM todo EXCEPT SELECT id FROM locked) r
 HAVING count(*) > 0 RETURNING size),
done AS (
 UPDATE {batch} SET mirrored = true, deleted = true WHERE source = $1 AND batch = ANY ($3))
SELECT count(*), coalesce((SELECT sum(size) FROM again), 0) < cardinality($2) FROM gone
WHERE ` + db.InRolesPath

// notReused: the id was not used again, by an event that has a later batch.
const notReused = ` AND NOT EXISTS (SELECT FROM {journal} j WHERE j.source = $1 AND j.event_id = {oid}
 AND EXISTS (SELECT FROM newest b WHERE ` + writtenLater + `))`

// DeleteStep deletes the outbox rows of about limit journaled events that were published at least so long ago, and says
// how many it deleted and whether more may be deleted now. It never waits for a row; what is locked by others is found
// by a later step. Nothing is done unless after_publish is delete, or there is a retention.
func (s *Upkeep) DeleteStep(ctx context.Context, retention time.Duration, limit int) (rows int, more bool, err error) {
	if s.db.Config.AfterPublish != record.Delete && retention <= 0 {
		return 0, false, nil
	}
	o, source, err := s.db.TableAndSource(ctx)
	if err != nil {
		return 0, false, err
	}
	p := new(db.Params).Int4(source).Int8(int64(limit)).Int8(batchesPerStep).Int8(retention.Microseconds()).Text(
		s.db.Config.Slot)
	p.Boolean(o.MarkSet != "")
	b, err := s.nextBatches(ctx, s.db.SQL(o, deletableSQL), p)
	if err != nil {
		return 0, false, fmt.Errorf("read the journal for deletion: %w", err)
	}
	if len(b.numbers) == 0 {
		return 0, false, nil
	}
	said := "true"
	if o.MarkSet != "" {
		said = "{published}"
	}
	said += s.sameSQL(o)
	if retention > 0 {
		said += notReused
	}
	if rows, more, err = s.applyBatches(ctx, o, source, mirroring, strings.ReplaceAll(deleteSQL, "{said}", said),
		b); err != nil {
		return 0, false, fmt.Errorf("delete %d outbox rows: %w", b.ids.n, err)
	}
	return rows, more && (b.ids.n >= limit || len(b.numbers) >= batchesPerStep), nil
}
