package outcome

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// lookupSQL gives the places (from 1) of the ids that are recorded, and 0 after a takeover by another.
const lookupSQL = `SELECT o.place FROM unnest($2) WITH ORDINALITY AS o({id}, place)
WHERE CASE WHEN (SELECT true FROM {journal} r WHERE r.source = $1 AND r.event_id = {oid} LIMIT 1) THEN true
 WHEN (SELECT true FROM {parked} r WHERE r.source = $1 AND r.event_id = {oid} LIMIT 1) THEN true
 WHEN (SELECT true FROM {dlq} r WHERE r.source = $1 AND r.original_id = {oid} LIMIT 1) THEN true ELSE false END
UNION ALL SELECT 0 WHERE NOT EXISTS (SELECT FROM {epoch} WHERE slot = $3 AND epoch = $4)`

// Lookup tells for each id whether its event is terminal: in the journal, parked, or a dead letter of this source.
// Three index probes per id at most; 1,000 ids at a time are a good measure. ErrFenced after a takeover by another:
// what that one has parked would be left out, and what comes behind it in its lane sent before it.
func (s *Writer) Lookup(ctx context.Context, ids [][]byte) ([]bool, error) {
	found := make([]bool, len(ids))
	if len(ids) == 0 {
		return found, nil
	}
	o, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		p := new(db.Params).Int4(source)
		if err = p.IDs(o.IDType, len(ids), func(i int) []byte { return ids[i] }); err == nil {
			p.Text(s.db.Config.Slot).Int8(s.db.Epoch())
			err = s.db.Send(ctx, db.Reading, s.db.SQL(o, lookupSQL), p, nil, func(row [][]byte) error {
				place, err := strconv.Atoi(string(row[0]))
				switch {
				case err != nil:
					return err
				case place == 0:
					return record.ErrFenced
				}
				found[place-1] = true
				return nil
			})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("look up %d ids: %w", len(ids), err)
	}
	return found, nil
}

// recognizeSQL gives the places (from 1) of the events whose ids are recorded, each with its [record.Recognition], and
// 0 after a takeover by another. A position of the stream tells events of one id apart. Where a row has none (a
// negative mark is of a row of the table), both times are the server's: what was committed after the row was written is
// another event; see journaledFrom. A time of the future was written before the clock was set back, and tells nothing.
// Nor does one between the look at the table and the row, unless the row was as a catch-up listed it; see sinceRead.
//
// $1 are the sources of the events: one statement for each source would cost more than all the probes where many
// outboxes have few events each.
var recognizeSQL = strings.ReplaceAll(`SELECT place, said FROM (SELECT place,
 CASE WHEN 1 IN (j, p, d) THEN 1 WHEN 3 IN (j, p, d) THEN 3 WHEN 2 IN (j, p, d) THEN 2 END AS said FROM (SELECT o.place,
 (SELECT CASE WHEN r.stream_mark = o.mark THEN 1 WHEN r.stream_mark >= 0 AND r.stream_mark <> o.mark THEN 2
  WHEN r.stream_mark < 0 AND NOT `+outbox.ListedSQL("r.stream_mark")+` AND `+
	sinceRead("r.published_at")+` THEN 3
  ELSE `+byTime(journaledFrom)+` END
  FROM {journal} r WHERE r.source = $1 AND r.event_id = {oid} LIMIT 1) AS j,
 (SELECT CASE WHEN r.late AND r.from_stream AND r.replay IS NULL AND `+sinceRead("r.parked_at")+` THEN 3
  WHEN o.mark IS NULL OR r.late OR NOT r.from_stream THEN `+byTime(parkedFrom)+`
  WHEN (r.position_order, r.position_index) = (o.at, o.index) THEN 1 ELSE 2 END
  FROM {parked} r WHERE r.source = $1 AND r.event_id = {oid} LIMIT 1) AS p,
 (SELECT CASE WHEN o.mark IS NULL OR NOT r.from_stream THEN `+byTime(deadFrom)+`
  WHEN (r.position_order, r.position_index) = (o.at, o.index) THEN 1 ELSE 2 END
  FROM {dlq} r WHERE r.source = $1 AND r.original_id = {oid} LIMIT 1) AS d
FROM (SELECT u.origin, u.{id}, NULLIF(u.mark, 0) AS mark, u.at, u.index, u.place,
  `+committedAt("NULLIF(u.committed, 0)")+` AS committed
 FROM unnest($1::integer[], $2, $5::integer[], $6::bigint[], $7::bigint[], $8::bigint[])
  WITH ORDINALITY AS u(origin, {id}, mark, at, index, committed, place)) o) t) s WHERE said IS NOT NULL
UNION ALL SELECT 0, 0 WHERE NOT EXISTS (SELECT FROM {epoch} WHERE slot = $3 AND epoch = $4)`,
	"source = $1", "source = o.origin")

// The times from which an event of the stream is another one than the journal row, the parked event or the dead letter
// r that has its id: when that was written. What a catch-up listed can be written long after, while its broker is away;
// the list was made at swept_at, which later sweeps move over what is confirmed only.
var (
	journaledFrom = fromList(outbox.ListedSQL("r.stream_mark"), "r.published_at")
	parkedFrom    = fromList("NOT r.from_stream AND r.replay IS NULL", "r.parked_at")
	// What is Unsure is sent, so it must not be dropped where its lane is parked.
	journaledSurely = fromList("r.stream_mark < 0", "r.published_at")
	parkedSurely    = fromList("(r.late OR NOT r.from_stream) AND r.replay IS NULL", "r.parked_at")
	deadFrom        = fromList("NOT r.from_stream", "r.dead_at")
)

func fromList(listed, written string) string {
	return "CASE WHEN " + listed + " THEN least(" + written +
		", (SELECT swept_at FROM {state} WHERE source = $1)) ELSE " + written + " END"
}

// sinceRead is a condition: the event o of the stream was committed after rows of the table were looked for at last,
// and before what was found was written. It may be the row that was found, or another event that used its id again.
func sinceRead(written string) string {
	return "o.committed > (SELECT swept_at FROM {state} WHERE source = $1) AND o.committed <= " + written
}

// committedAt makes a time of microseconds since the Unix epoch.
func committedAt(micros string) string {
	return "('epoch'::timestamptz + " + micros + " * interval '1 microsecond')"
}

// byTime is a [record.Recognition] of the event o by the time at which a row of its id was written.
func byTime(written string) string {
	return `CASE WHEN o.committed IS NULL THEN 1
  WHEN greatest(o.committed, ` + written + `) > clock_timestamp() OR o.committed = ` + written + ` THEN 3
  WHEN o.committed < ` + written + ` THEN 1 ELSE 2 END`
}

// Recognize tells for each event whether it is terminal, as [Writer.Lookup] does by its id, or whether what is recorded
// under its id is another event: ids can be used again, say after TRUNCATE … RESTART IDENTITY. ErrFenced after a
// takeover by another.
func (s *Writer) Recognize(ctx context.Context, events []record.Sighting) ([]record.Recognition, error) {
	found := make([]record.Recognition, len(events))
	if len(events) == 0 {
		return found, nil
	}
	o, source, err := s.db.TableAndSource(ctx)
	var p *db.Params
	if err == nil {
		p, err = s.sightings(o, source, events)
	}
	if err == nil {
		err = s.db.Send(ctx, db.Reading, s.db.SQL(o, recognizeSQL), p, nil, func(row [][]byte) error {
			place, err := strconv.Atoi(string(row[0]))
			said, wrong := strconv.ParseUint(string(row[1]), 10, 8)
			switch {
			case err != nil || wrong != nil:
				return errors.Join(err, wrong)
			case place == 0:
				return record.ErrFenced
			}
			found[place-1] = record.Recognition(said)
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("look up %d events: %w", len(events), err)
	}
	return found, nil
}

// sightings are the parameters of recognizeSQL. Source is of events that have none of their own.
func (s *Writer) sightings(o *db.Table, source int32, events []record.Sighting) (*db.Params, error) {
	n := len(events)
	sources := db.ArrayHeader(nil, pgtype.Int4OID, n)
	for i := range events {
		sources = db.AppendInt4(sources, cmp.Or(events[i].Source, source))
	}
	p := new(db.Params).Add(pgtype.Int4ArrayOID, db.BinaryFormat, sources)
	if err := p.IDs(o.IDType, n, func(i int) []byte { return events[i].ID }); err != nil {
		return nil, err
	}
	p.Text(s.db.Config.Slot).Int8(s.db.Epoch())
	marks := db.ArrayHeader(nil, pgtype.Int4OID, n)
	for i := range events {
		marks = db.AppendInt4(marks, events[i].Position.Mark())
	}
	p.Add(pgtype.Int4ArrayOID, db.BinaryFormat, marks)
	p.Int8s(n, func(i int) int64 { return int64(events[i].Position.Order) })
	p.Int8s(n, func(i int) int64 { return int64(events[i].Position.Index) })
	p.Int8s(n, func(i int) int64 { return events[i].Committed })
	return p, nil
}
