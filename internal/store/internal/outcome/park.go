package outcome

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

const parkedColumns = `source, event_id, topic, key, epoch, from_stream, position_order, position_index,
 aggregate_type, aggregate_id, event_type, payload, headers, created_at, extra, retry_count, next_retry_at,
 last_error, error_class, last_error_at, late`

const parkedValues = `$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15::jsonb, $16,
 CASE WHEN $17::bigint >= 0 THEN now() + $17 * interval '1 microsecond' WHEN $17 = -2 THEN 'infinity'::timestamptz END,
 $18, $19, now(), $20`

var parkSQL = `INSERT INTO {parked} (` + parkedColumns + `) SELECT ` + parkedValues + `
WHERE NOT EXISTS (SELECT FROM {journal} r WHERE r.source = $1 AND r.event_id = $2 AND CASE WHEN $21 = 0 THEN true
  WHEN $21 < 0 THEN coalesce(r.stream_mark = $21, false)
  WHEN r.stream_mark IS NULL OR r.stream_mark < 0 THEN ` + journaledSurely + ` >= ` + committedAt("$22::bigint") + `
  ELSE r.stream_mark = $21 END)
 AND NOT EXISTS (SELECT FROM {dlq} r WHERE r.source = $1 AND r.original_id = $2 AND CASE WHEN $21 <= 0 THEN true
  WHEN r.from_stream THEN (r.position_order, r.position_index) = ($7, $8)
  ELSE ` + deadFrom + ` >= ` + committedAt("$22::bigint") + ` END)
ON CONFLICT DO NOTHING`

// takenSQL reports whether another event than the one to be parked is parked under its id.
var takenSQL = `SELECT FROM {parked} r WHERE r.source = $1 AND r.event_id = $2 AND
 CASE WHEN r.from_stream AND NOT r.late THEN (r.position_order, r.position_index) <> ($3, $4)
 ELSE ` + parkedSurely + ` < ` + committedAt("$5::bigint") + ` END`

// Park commits events aside, all or none, durably, and says how many of them were not there yet. An id that is parked
// already keeps its first place. One that is journaled or dead is left alone: another relay had the slot for a while
// and settled it. ErrIDTaken: another event with the same id is parked. Fenced.
func (s *Writer) Park(ctx context.Context, events []record.Parked) (parked int64, err error) {
	o, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		bytes := 0
		for i := range events {
			bytes += len(events[i].Event.Payload) + len(events[i].Event.Headers)
		}
		err = s.db.Fenced(ctx, db.Writing.For(bytes), func(tx pgx.Tx) error {
			var left []*record.Parked
			parked, left, err = s.parkEach(ctx, tx, o, source, events, parkSQL, func(p *db.Params, e *record.Parked) {
				p.Int4(markOf(e)).Int8(e.Committed)
			})
			if err == nil {
				err = s.refuseTaken(ctx, tx, o, source, left)
			}
			return err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("park %d events: %w", len(events), err)
	}
	return parked, nil
}

// markOf is 0 where the place of the event tells nothing of its identity, negative for a row that is told by its own.
func markOf(e *record.Parked) int32 {
	if e.Reused {
		return e.Event.Position.RowMark(e.Listed, true)
	}
	if e.Late || e.Committed == 0 {
		return 0
	}
	return e.Event.Position.Mark()
}

// refuseTaken is ErrIDTaken if one of the events was not parked because another one with its id is.
func (s *Writer) refuseTaken(ctx context.Context, tx pgx.Tx, o *db.Table, source int32, left []*record.Parked) error {
	for _, e := range left {
		if markOf(e) <= 0 {
			continue
		}
		p := new(db.Params).Int4(cmp.Or(e.Event.Source, source))
		if err := p.ID(o.IDType, e.Event.ID); err != nil {
			return err
		}
		at := e.Event.Position
		p.Int8(int64(at.Order)).Int8(int64(at.Index)).Int8(e.Committed)
		found := tx.Conn().PgConn().ExecParams(ctx, s.db.SQL(o, takenSQL), p.Values, p.OIDs, p.Formats, nil).Read()
		if found.Err != nil {
			return found.Err
		}
		if len(found.Rows) > 0 {
			return fmt.Errorf("park %.64q: %w", e.Event.ID, record.ErrIDTaken)
		}
	}
	return nil
}

// parkEach runs the statement, in one round trip, for each event, and says how many it parked, and which it left. more
// adds what the statement needs besides parkedValues.
func (s *Writer) parkEach(ctx context.Context, tx pgx.Tx, o *db.Table, source int32, events []record.Parked,
	statement string, more func(*db.Params, *record.Parked)) (parked int64, left []*record.Parked, err error) {
	var b pgconn.Batch
	text := s.db.SQL(o, statement)
	for i := range events {
		p, err := s.parkParams(o, source, &events[i])
		if err != nil {
			return 0, nil, err
		}
		more(p, &events[i])
		b.ExecParams(text, p.Values, p.OIDs, p.Formats, nil)
	}
	results, err := tx.Conn().PgConn().ExecBatch(ctx, &b).ReadAll()
	for i, r := range results {
		if n := r.CommandTag.RowsAffected(); n > 0 {
			parked += n
		} else if i < len(events) {
			left = append(left, &events[i])
		}
	}
	return parked, left, err
}

func (s *Writer) parkParams(o *db.Table, source int32, e *record.Parked) (*db.Params, error) {
	ev := e.Event
	p := new(db.Params).Int4(cmp.Or(ev.Source, source))
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
