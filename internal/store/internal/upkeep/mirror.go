package upkeep

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// mirroring waits for no row, and for a table that is locked only as long as it takes others to extend it: what is not
// free then is tried again at the next step. The mark may be forgotten by a crash of the server together with the note
// that it was made.
var mirroring = db.Limits{Lock: 250 * time.Millisecond, Statement: 10 * time.Second, Commit: db.Relaxed,
	Triggers: true}

// marking is mirroring for statements that write into the outbox: times become its columns' as the application writes
// them.
func marking(o *db.Table) db.Limits {
	l := mirroring
	l.Zone = o.Zone
	return l
}

// batchesPerStep bounds how many batches of the journal one step reads, whatever their size.
const batchesPerStep = 500

// finished: the transaction that wrote the batch, and every one that took its number before it, is over. A batch waits
// for them because an event can be streamed, published and journaled while its row is still invisible to us, as under
// synchronous replication; its transaction then is one of the earlier ones. A number from the future was restored from
// another server's dump.
const finished = `(xid < pg_snapshot_xmin(pg_current_snapshot()) OR xid >= pg_snapshot_xmax(pg_current_snapshot()))`

// head and bounded enclose which batches are looked at for more: the first of a kind, ten times batchesPerStep. Batches
// become old, finished and confirmed in the order of their numbers, so what is due is among them; else each step would
// end by reading all that are not due, which is nearly the whole table: a row for every event or two of a week.
const (
	head    = ` FROM (SELECT * FROM {batch} WHERE source = $1 `
	bounded = ` ORDER BY batch LIMIT 5000) h WHERE `
)

const nextBatchesSQL = `SELECT batch, size, ids FROM (
 SELECT batch, size, ids, sum(size) OVER (ORDER BY batch) AS total FROM (
  SELECT batch, size, ids` + head + `AND NOT mirrored` + bounded + finished + ` ORDER BY batch LIMIT $3) b) b
WHERE total - size < $2`

// markSQL marks what it can lock at once, and notes the rest as a new batch. The three reads of the outbox see one
// snapshot: what is unpublished and was not locked is locked by others, or was changed since; it is looked at again.
const markSQL = `WITH locked AS MATERIALIZED (
 SELECT o.{id} AS id FROM {outbox} o WHERE {ours} AND o.{id} = ANY ($2) AND NOT {published}{same}
 FOR NO KEY UPDATE SKIP LOCKED),
todo AS MATERIALIZED (
 SELECT o.{id} AS id FROM {outbox} o WHERE {ours} AND o.{id} = ANY (` + unlockedSQL + `) AND NOT {published}{same}),
marked AS (
 UPDATE {outbox} SET {mark}
 WHERE {ours} AND {id} = ANY (ARRAY(SELECT id FROM locked)) RETURNING 1),
again AS (
 INSERT INTO {batch} (source, size, ids) SELECT $1, count(*), array_agg(id)
 FROM (SELECT id FROM todo EXCEPT SELECT id FROM locked) r
 HAVING count(*) > 0 RETURNING 1),
done AS (
 UPDATE {batch} SET mirrored = true WHERE source = $1 AND batch = ANY ($3))
SELECT count(*), EXISTS (SELECT 1 FROM again) OR ` + leftSQL + ` FROM marked WHERE ` + db.InRolesPath

// sameSQL is a condition: the row is that of the event in the batches, and does not use its id again. Only a row that
// was made after the first of them was written may, so only for such a row the journal is read.
func (s *Upkeep) sameSQL(o *db.Table) string {
	younger := s.db.MadeAfter(o, `(SELECT min(published_at) FROM {batch} WHERE source = $1 AND batch = ANY ($3))`)
	return ` AND CASE WHEN ` + younger + ` THEN (SELECT {of_another} FROM {journal} r
  WHERE r.source = $1 AND r.event_id = {oid} LIMIT 1) IS NOT TRUE ELSE true END`
}

// unlockedSQL is the ids among which those that were not locked are to be looked for: none when all were, which is
// nearly always so, and spares the server one look at each row of three. Ids are counted, not rows: several rows may
// have one.
const unlockedSQL = `CASE WHEN (SELECT count(DISTINCT id) FROM locked) < cardinality($2) THEN $2 END`

// leftSQL: there are batches that are not mirrored, the ones in $3 apart.
const leftSQL = `EXISTS (SELECT 1 FROM {batch} WHERE source = $1 AND NOT mirrored AND batch <> ALL ($3))`

// MirrorStep marks the outbox rows of about limit journaled events and says how many rows it marked, and whether there
// are more to mark. No row marked but more: they are locked by others, or an older transaction is still open; a later
// step finds them. It never waits for a lock: a table that is locked is an error for which [record.IsTransient] is
// true. Nothing is done where nothing is to be marked (after_publish keep or delete, or no column to mark).
func (s *Upkeep) MirrorStep(ctx context.Context, limit int) (rows int, more bool, err error) {
	o, source, err := s.db.TableAndSource(ctx)
	if err != nil {
		return 0, false, err
	}
	if o.MarkSet == "" {
		return 0, false, nil
	}
	b, err := s.nextBatches(ctx, s.db.SQL(o, nextBatchesSQL),
		new(db.Params).Int4(source).Int8(int64(limit)).Int8(batchesPerStep))
	if err != nil {
		return 0, false, fmt.Errorf("read the journal for the mirror: %w", err)
	}
	text := strings.ReplaceAll(markSQL, "{same}", s.sameSQL(o))
	if len(b.numbers) == 0 {
		text = `SELECT 0::bigint, ` + leftSQL + ` WHERE $2 IS NOT NULL`
	}
	if rows, more, err = s.applyBatches(ctx, o, source, marking(o), text, b); err != nil {
		return 0, false, fmt.Errorf("mark %d outbox rows: %w", b.ids.n, err)
	}
	return rows, more, nil
}

// batches are consecutive batches of the journal, their ids joined.
type batches struct {
	numbers []int64
	ids     idArray
}

func (s *Upkeep) nextBatches(ctx context.Context, text string, p *db.Params) (b batches, err error) {
	err = s.db.Send(ctx, db.Reading, text, p, []int16{db.BinaryFormat}, func(row [][]byte) error {
		b.numbers = append(b.numbers, int64(binary.BigEndian.Uint64(row[0])))
		return b.ids.add(row[2])
	})
	return b, err
}

// applyBatches runs a statement on the source, the ids and the numbers of the batches; its result is how many rows it
// changed, and whether there are more.
func (s *Upkeep) applyBatches(ctx context.Context, o *db.Table, source int32, l db.Limits, text string,
	b batches) (rows int, more bool, err error) {
	p := new(db.Params).Int4(source)
	b.ids.param(p, o.IDType)
	numbers := db.ArrayHeader(nil, pgtype.Int8OID, len(b.numbers))
	for _, n := range b.numbers {
		numbers = binary.BigEndian.AppendUint32(numbers, 8)
		numbers = binary.BigEndian.AppendUint64(numbers, uint64(n))
	}
	p.Add(pgtype.Int8ArrayOID, db.BinaryFormat, numbers)
	err = s.db.Send(ctx, l, s.db.SQL(o, text), p, []int16{db.BinaryFormat}, func(row [][]byte) error {
		rows, more = int(binary.BigEndian.Uint64(row[0])), row[1][0] == 1
		return nil
	})
	return rows, more, err
}

// NextUnmarked is the first source, behind the one given, that has events whose rows are to be marked or deleted as far
// as the batches say; 0: none has. It is for a Store that covers several outboxes.
func (s *Upkeep) NextUnmarked(ctx context.Context, after int32) (source int32, err error) {
	text, of := s.db.Mine(s.db.Names.SQL(`SELECT coalesce((SELECT source FROM {batch} WHERE source = $1 AND source > $2
 AND NOT mirrored ORDER BY source LIMIT 1), 0)`), s.db.Source())
	if err = s.db.One(ctx, db.Reading, func(row pgx.Row) error { return row.Scan(&source) }, text, of, after); err != nil {
		return 0, fmt.Errorf("look for outboxes with rows to mark: %w", err)
	}
	return source, nil
}

// lagSQL sums the batches that are not mirrored, and looks the first of them up.
const lagSQL = `SELECT coalesce(l.events, 0)::bigint,
 coalesce(extract(epoch FROM now() - b.published_at) * 1000000, 0)::bigint
FROM (SELECT sum(size) AS events, min(batch) AS first FROM {batch} WHERE source = $1 AND NOT mirrored{due}) l
LEFT JOIN {batch} b ON b.source = $1 AND b.batch = l.first`

// MirrorLag is the number of journaled events whose rows are to be marked or deleted by now and are not, as far as the
// batches say, and for how long the oldest of them is to be; 0 when neither is to be done. It reads one index, an entry
// per batch. Rows that were locked when their turn came count from then.
func (s *Upkeep) MirrorLag(ctx context.Context) (events int64, age time.Duration, err error) {
	o, source, err := s.db.TableAndSource(ctx)
	if err != nil || o.MarkSet == "" && s.db.Config.AfterPublish != record.Delete {
		return 0, 0, err
	}
	due, args, retention := ``, []any(nil), time.Duration(0)
	// up to the first that is too young: not the whole retention each time
	if s.db.Config.AfterPublish == record.Delete && s.db.Config.Retention > 0 {
		due = ` AND batch < coalesce((SELECT batch FROM {batch} WHERE source = $1 AND NOT mirrored
 AND published_at > now() - $2 * interval '1 microsecond' ORDER BY batch LIMIT 1), 9223372036854775807)`
		retention = s.db.Config.Retention
		args = append(args, retention.Microseconds())
	}
	var micros int64
	text, of := s.db.Mine(s.db.SQL(o, strings.Replace(lagSQL, "{due}", due, 1)), source)
	err = s.db.One(ctx, db.Reading, func(row pgx.Row) error { return row.Scan(&events, &micros) }, text,
		append([]any{of}, args...)...)
	if err != nil {
		return 0, 0, fmt.Errorf("measure the mirror's lag: %w", err)
	}
	return events, max(time.Duration(micros)*time.Microsecond-retention, 0), nil
}
