package outcome

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/store/internal/db"
	"github.com/cdc-relay/cdc-relay/store/internal/record"
)

const parkedColumns = `source, event_id, topic, key, epoch, from_stream, position_order, position_index,
 aggregate_type, aggregate_id, event_type, payload, headers, created_at, extra, retry_count, next_retry_at,
 last_error, error_class, last_error_at, late`

const parkedValues = `$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15::jsonb, $16,
 CASE WHEN $17::bigint >= 0 THEN now() + $17 * interval '1 microsecond' WHEN $17 = -2 THEN 'infinity'::timestamptz END,
 $18, $19, now(), $20`

const parkSQL = `INSERT INTO {parked} (` + parkedColumns + `) SELECT ` + parkedValues + `
WHERE NOT EXISTS (SELECT FROM {journal} r WHERE r.source = $1 AND r.event_id = $2)
 AND NOT EXISTS (SELECT FROM {dlq} r WHERE r.source = $1 AND r.original_id = $2)
ON CONFLICT DO NOTHING`

// Park commits events aside, all or none, durably, and says how many of them were not there yet. An id that is parked
// already keeps its first place. One that is journaled or dead is left alone: another relay had the slot for a while
// and settled it. Fenced.
func (s *Writer) Park(ctx context.Context, events []record.Parked) (parked int64, err error) {
	o, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		err = s.db.Fenced(ctx, db.Writing, func(tx pgx.Tx) error {
			parked, err = s.parkEach(ctx, tx, o, source, events, parkSQL, nil)
			return err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("park %d events: %w", len(events), err)
	}
	return parked, nil
}

// parkEach runs the statement, in one round trip, for each event, and says how many it parked. more, if it is not nil,
// adds what the statement needs besides parkedValues.
func (s *Writer) parkEach(ctx context.Context, tx pgx.Tx, o *db.Table, source int32, events []record.Parked,
	statement string, more func(*db.Params)) (parked int64, err error) {
	var b pgconn.Batch
	text := s.db.SQL(o, statement)
	for i := range events {
		p, err := s.parkParams(o, source, &events[i])
		if err != nil {
			return 0, err
		}
		if more != nil {
			more(p)
		}
		b.ExecParams(text, p.Values, p.OIDs, p.Formats, nil)
	}
	results, err := tx.Conn().PgConn().ExecBatch(ctx, &b).ReadAll()
	for _, r := range results {
		parked += r.CommandTag.RowsAffected()
	}
	return parked, err
}

func (s *Writer) parkParams(o *db.Table, source int32, e *record.Parked) (*db.Params, error) {
	ev := e.Event
	p := new(db.Params).Int4(source)
	if err := p.ID(o.IDType, ev.ID); err != nil {
		return nil, err
	}
	extra, err := s.extra(ev.Extra)
	if err != nil {
		return nil, err
	}
	p.Text(e.Topic).Add(pgtype.ByteaOID, db.BinaryFormat, e.Key)
	p.Int8(ev.Position.Epoch).Boolean(!ev.Position.Table).Int8(int64(ev.Position.Order)).Int8(int64(ev.Position.Index))
	p.Add(pgtype.TextOID, db.TextFormat, ev.AggregateType).Add(pgtype.TextOID, db.TextFormat, ev.AggregateID)
	p.Add(pgtype.TextOID, db.TextFormat, ev.EventType).Add(pgtype.ByteaOID, db.BinaryFormat, ev.Payload)
	p.Add(pgtype.TextOID, db.TextFormat, ev.Headers).Add(pgtype.TextOID, db.TextFormat, ev.CreatedAt)
	p.Add(pgtype.JSONBOID, db.TextFormat, extra).Int4(int32(e.Attempts)).Int8(dueParam(e.RetryIn))
	return p.Text(s.db.Clean(e.Text)).Text(string(e.Class)).Boolean(e.Late), nil
}

func dueParam(d time.Duration) int64 {
	if d < 0 {
		return int64(d)
	}
	return d.Microseconds()
}
