package table

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// auditing reads a range of the outbox: not forever, because a long snapshot keeps the server from cleaning up.
var auditing = db.Limits{Lock: 2 * time.Second, Statement: 5 * time.Minute, Interpreted: true}

// zonelessMargin is by how much the clock on the wall may be behind UTC anywhere: a column without a time zone does not
// tell which one its writers meant.
const zonelessMargin = `interval '14 hours'`

// auditStateSQL takes any whole btree or BRIN index whose first column is created_at. A partial one would hide rows.
const auditStateSQL = `SELECT t.horizon, coalesce(t.swept_at, 'epoch'), EXISTS (
  SELECT FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am am ON am.oid = c.relam
  JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
  WHERE i.indrelid = $2 AND i.indisvalid AND i.indpred IS NULL AND am.amname IN ('btree', 'brin') AND a.attname = $3),
 (SELECT coalesce(max(pg_relation_size(o)), 0) / current_setting('block_size')::bigint + 1 FROM unnest($4::oid[]) o)
FROM {state} t WHERE t.slot = $1`

// AuditState reads where the next round begins, and whether it can. It looks at the catalog and at the size of files.
func (s *Reader) AuditState(ctx context.Context) (record.AuditState, error) {
	var st record.AuditState
	o, err := s.db.Table(ctx)
	if err == nil {
		err = s.db.One(ctx, db.Reading, func(row pgx.Row) error {
			return row.Scan(&st.Horizon, &st.SweptAt, &st.Ranged, &st.Blocks)
		},
			s.db.SQL(o, auditStateSQL), s.db.StateKey(), o.OID, s.db.Config.Columns.CreatedAt, o.OIDs)
	}
	if err != nil {
		return record.AuditState{}, fmt.Errorf("read the reconciler's state: %w", err)
	}
	if st.SweptAt.Unix() == 0 {
		st.SweptAt = time.Time{}
	}
	return st, nil
}

// SaveHorizon records where the next round begins. It does not wait for the disk: an older one only means more to look
// at. Fenced.
func (s *Reader) SaveHorizon(ctx context.Context, horizon time.Time) error {
	return s.saveAudit(ctx, `horizon = $2`, horizon)
}

// SaveSweep records when the whole table was found recorded. Fenced.
func (s *Reader) SaveSweep(ctx context.Context, at time.Time) error {
	return s.saveAudit(ctx, `swept_at = $2`, at)
}

func (s *Reader) saveAudit(ctx context.Context, set string, at time.Time) error {
	err := s.db.Fenced(ctx, db.Noting, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.db.Names.SQL(`UPDATE {state} SET `+set+` WHERE slot = $1`), s.db.StateKey(), at)
		return err
	})
	if err != nil {
		return fmt.Errorf("save the reconciler's state: %w", err)
	}
	return nil
}

// runningSQL looks at locks because they are shown to every role, unlike the times in pg_stat_activity. A VACUUM can
// take hours and inserts nothing.
const runningSQL = `SELECT now(), ARRAY(SELECT l.virtualxid FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'virtualxid' AND l.mode = 'ExclusiveLock' AND l.virtualxid IS NOT NULL AND l.pid <> pg_backend_pid()
  AND a.datname = current_database() AND NOT EXISTS (SELECT FROM pg_stat_progress_vacuum v WHERE v.pid = l.pid))`

// Running lists the transactions that may still insert into the outbox, or have and are not visible yet.
func (s *Reader) Running(ctx context.Context) (record.Running, error) {
	var r record.Running
	err := s.db.Tx(ctx, db.Reading, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, runningSQL).Scan(&r.Now, &r.Sessions); err != nil {
			return err
		}
		// After the sessions: one that prepares its transaction in between is in both lists, not in none.
		return tx.QueryRow(ctx,
			`SELECT ARRAY(SELECT transaction::text FROM pg_prepared_xacts WHERE database = current_database())`).Scan(
			&r.Prepared)
	})
	if err != nil {
		return record.Running{}, fmt.Errorf("list running transactions: %w", err)
	}
	return r, nil
}

// UnrecordedSince gives the ids of rows whose created_at is not before the time and that no journal row, parked event
// or dead letter knows and that do not say themselves that they are published: at most limit of them. Most are on their
// way. It reads an index range; see [record.AuditState].
func (s *Reader) UnrecordedSince(ctx context.Context, since time.Time, limit int) ([][]byte, error) {
	return s.unrecorded(ctx, s.sinceSQL, func(p *db.Params) { p.Int8(since.UnixMicro()) }, limit)
}

// UnrecordedIn gives the same for the rows in blocks from…to-1 of the table, and of each of its partitions.
func (s *Reader) UnrecordedIn(ctx context.Context, from, to int64, limit int) ([][]byte, error) {
	return s.unrecorded(ctx, func(*db.Table) string { return `o.ctid >= $3 AND o.ctid < $4` }, func(p *db.Params) {
		for _, block := range []int64{from, to} {
			p.Add(pgtype.TIDOID, db.TextFormat, fmt.Appendf(nil, "(%d,0)", block))
		}
	}, limit)
}

// sinceSQL is a comparison that an index can answer, $3 being microseconds since the Unix epoch.
func (s *Reader) sinceSQL(o *db.Table) string {
	since := `('epoch'::timestamptz + $3 * interval '1 microsecond')`
	if !o.CreatedZoned {
		since = `((` + since + ` AT TIME ZONE 'UTC') - ` + zonelessMargin + `)`
	}
	return `o.` + db.Quote(s.db.Config.Columns.CreatedAt) + ` >= ` + since
}

func (s *Reader) unrecorded(ctx context.Context, where func(*db.Table) string, bounds func(*db.Params),
	limit int) ([][]byte, error) {
	var ids [][]byte
	o, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		p := new(db.Params).Int4(source).Int8(int64(limit))
		bounds(p)
		err = s.db.Send(ctx, auditing, s.db.SQL(o, s.unrecordedSQL(where(o))), p, nil, func(row [][]byte) error {
			ids = append(ids, bytes.Clone(row[0]))
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("look for unrecorded rows: %w", err)
	}
	return ids, nil
}

func (s *Reader) unrecordedSQL(where string) string {
	return `SELECT o.{id}::text FROM {outbox} o WHERE {ours} AND ` + where + ` AND NOT {published} AND NOT {recorded}
LIMIT $2`
}

// LateRows gives those of the rows that still exist and are still not recorded, in the order of outbox.order_by, whose
// number in it is Row: at most limit, and not many more bytes than 4 MiB. ErrFenced after a takeover by another.
func (s *Reader) LateRows(ctx context.Context, ids [][]byte, limit int) ([]record.CatchUpRow, error) {
	o, source, err := s.db.TableAndSource(ctx)
	var rows []record.CatchUpRow
	if err == nil {
		p := new(db.Params).Int4(source)
		if err = p.IDs(o.IDType, len(ids), func(i int) []byte { return ids[i] }); err == nil {
			rows, err = s.readPage(ctx, o, limit, `SELECT row_number() OVER (ORDER BY {order}
) AS n`+s.eventColumns("NULL")+
				` FROM {outbox} o WHERE {ours} AND o.{id} = ANY ($2) AND NOT {published} AND NOT {recorded}
ORDER BY n LIMIT `+
				strconv.Itoa(limit), p)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read rows that were not delivered: %w", err)
	}
	return rows, nil
}
