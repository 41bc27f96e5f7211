package outcome

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

const deadSQL = `INSERT INTO {dlq} (source, original_id, aggregate_type, aggregate_id, event_type, payload, headers,
 created_at, extra,
 topic, key, partition, position, epoch, from_stream, position_order, position_index, attempts, error_class,
 error_code, last_error, holds)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, NULLIF($12, -1), $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)
ON CONFLICT DO NOTHING`

// insertDead writes one dead letter. The values are as Postgres printed the outbox's columns, and the dead
// letter's columns have the same types, so that none of them can be refused.
func (s *Writer) insertDead(ctx context.Context, tx pgx.Tx, o *db.Table, source int32, d *record.Dead) error {
	const columnType = 0 // lets the server take the column's type
	e := d.Event
	payloadFormat := int16(db.TextFormat)
	if o.PayloadType == "bytea" {
		payloadFormat = db.BinaryFormat
	}
	extra, err := s.extra(e.Extra)
	if err != nil {
		return err
	}
	id, err := db.AppendID(nil, o.IDType, e.ID)
	if err != nil {
		return err
	}
	element, _ := db.IDElement(o.IDType)
	p := new(db.Params).Int4(source)
	p.Add(element, db.BinaryFormat, id[4:])
	p.Add(columnType, db.TextFormat, e.AggregateType).Add(columnType, db.TextFormat, e.AggregateID).Add(columnType,
		db.TextFormat, e.EventType)
	p.Add(columnType, payloadFormat, e.Payload).Add(columnType, db.TextFormat, e.Headers).Add(columnType, db.TextFormat,
		e.CreatedAt)
	p.Add(columnType, db.TextFormat, extra)
	p.Text(d.Topic).Add(pgtype.ByteaOID, db.BinaryFormat, d.Key).Int4(d.Partition)
	position := e.Position
	p.Text(position.String()).Int8(position.Epoch).Boolean(!position.Table)
	p.Int8(int64(position.Order)).Int8(int64(position.Index)).Int4(int32(d.Attempts))
	p.Text(string(d.Class)).Text(s.db.Clean(d.Code)).Text(s.db.Clean(d.Text)).Boolean(d.Holds)
	for {
		result := tx.Conn().PgConn().ExecParams(ctx, s.db.SQL(o, deadSQL), p.Values, p.OIDs, p.Formats, nil).Read()
		again := false
		err := result.Err
		if err == nil && result.CommandTag.RowsAffected() == 0 && d.Committed != 0 && position.Mark() != 0 {
			again, err = s.makeRoom(ctx, tx, o, source, d)
		}
		if err != nil {
			return fmt.Errorf("insert dead letter %.64q: %w", e.ID, err)
		}
		if !again {
			return nil
		}
	}
}

// namesakeSQL reports of another event's dead letter with the same id whether something became of it.
var namesakeSQL = `SELECT r.id, (r.replayed_at IS NOT NULL OR r.discarded_at IS NOT NULL)::text FROM {dlq} r
WHERE r.source = $1 AND r.original_id = $2
 AND CASE WHEN r.from_stream THEN (r.position_order, r.position_index) <> ($3, $4) ELSE
  ` + deadFrom + ` < ` + committedAt("$5::bigint") + ` END FOR UPDATE OF r`

// makeRoom deletes the dead letter of another event that has the id of d, if something became of it. False: the dead
// letter is that of d.
func (s *Writer) makeRoom(ctx context.Context, tx pgx.Tx, o *db.Table, source int32, d *record.Dead) (bool, error) {
	p := new(db.Params).Int4(source)
	if err := p.ID(o.IDType, d.Event.ID); err != nil {
		return false, err
	}
	at := d.Event.Position
	p.Int8(int64(at.Order)).Int8(int64(at.Index)).Int8(d.Committed)
	found := tx.Conn().PgConn().ExecParams(ctx, s.db.SQL(o, namesakeSQL), p.Values, p.OIDs, p.Formats, nil).Read()
	switch {
	case found.Err != nil || len(found.Rows) == 0:
		return false, found.Err
	case string(found.Rows[0][1]) != "true":
		return false, record.ErrIDTaken
	}
	gone := new(db.Params).Int4(source)
	if err := gone.ID(o.IDType, d.Event.ID); err != nil {
		return false, err
	}
	for _, text := range []string{`DELETE FROM {edit} WHERE source = $1 AND event_id = $2`,
		`DELETE FROM {dlq} WHERE source = $1 AND original_id = $2`} {
		if err := db.ExecWire(ctx, tx, s.db.SQL(o, text), gone); err != nil {
			return false, err
		}
	}
	return true, nil
}

// dieAgain notes in its dead letter that a replayed event was given up once more, and that nothing has become of it
// after all. Its attempts are those of all its lives; whether it holds its lane is decided again. False: it was
// published before, and never a dead letter.
func (s *Writer) dieAgain(ctx context.Context, tx pgx.Tx, o *db.Table, source int32,
	d *record.Dead) (found bool, err error) {
	p := new(db.Params).Int4(source)
	if err := p.ID(o.IDType, d.Event.ID); err != nil {
		return false, err
	}
	p.Int4(int32(d.Attempts)).Text(string(d.Class)).Text(s.db.Clean(d.Code)).Text(s.db.Clean(d.Text)).Boolean(d.Holds)
	result := tx.Conn().PgConn().ExecParams(ctx,
		s.db.Names.SQL(`UPDATE {dlq} SET attempts = attempts + $3, error_class = $4, error_code = $5, last_error = $6,
 holds = $7, dead_at = now(), replayed_at = NULL, discarded_at = NULL WHERE source = $1 AND original_id = $2`),
		p.Values, p.OIDs, p.Formats, nil).Read()
	if result.Err != nil {
		return false, fmt.Errorf("record that the replayed event %.64q is a dead letter again: %w", d.Event.ID, result.Err)
	}
	return result.CommandTag.RowsAffected() > 0, nil
}

// extra keeps the further columns under their names, as text.
func (s *Writer) extra(values [][]byte) ([]byte, error) {
	if len(values) == 0 {
		return nil, nil
	}
	object := make(map[string]*string, len(values))
	for i, name := range s.db.Config.Columns.Extra {
		if i < len(values) && values[i] != nil {
			text := db.Valid(string(values[i]))
			object[name] = &text
		} else {
			object[name] = nil
		}
	}
	return json.Marshal(object)
}
