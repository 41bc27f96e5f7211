package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// maxErrorText bounds last_error, in bytes: a broker's message may be long, and the row is for people.
const maxErrorText = 4 << 10

const deadSQL = `INSERT INTO {dlq} (source, original_id, aggregate_type, aggregate_id, event_type, payload, headers, created_at, extra,
 topic, key, partition, position, epoch, from_stream, position_order, position_index, attempts, error_class, error_code, last_error, holds)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, NULLIF($12, -1), $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)
ON CONFLICT DO NOTHING`

// insertDead writes one dead letter. The values are what Postgres printed for the outbox's columns, and the dead
// letter's columns have the same types, so that none of them can be refused.
func (s *Store) insertDead(ctx context.Context, tx pgx.Tx, o *Outbox, source int32, d *Dead) error {
	const columnType = 0 // lets the server take the column's type
	e := d.Event
	payloadFormat := int16(textFormat)
	if o.PayloadType == "bytea" {
		payloadFormat = binaryFormat
	}
	extra, err := s.extra(e.Extra)
	if err != nil {
		return err
	}
	id, err := appendID(nil, o.IDType, e.ID)
	if err != nil {
		return err
	}
	element, _ := idElement(o.IDType)
	p := new(params).int4(source)
	p.add(element, binaryFormat, id[4:])
	p.add(columnType, textFormat, e.AggregateType).add(columnType, textFormat, e.AggregateID).add(columnType, textFormat, e.EventType)
	p.add(columnType, payloadFormat, e.Payload).add(columnType, textFormat, e.Headers).add(columnType, textFormat, e.CreatedAt)
	p.add(columnType, textFormat, extra)
	p.text(d.Topic).add(pgtype.ByteaOID, binaryFormat, d.Key).int4(d.Partition)
	position := e.Position
	p.text(position.String()).int8(position.Epoch).boolean(!position.Table)
	p.int8(int64(position.Order)).int8(int64(position.Index)).int4(int32(d.Attempts))
	p.text(string(d.Class)).text(clean(d.Code)).text(clean(d.Text)).boolean(d.Holds)
	if err := execWire(ctx, tx, s.sql(o, deadSQL), p); err != nil {
		return fmt.Errorf("insert dead letter %.64q: %w", e.ID, err)
	}
	return nil
}

// CountDead is the number of dead letters that nobody has replayed or discarded.
func (s *Store) CountDead(ctx context.Context) (n int64, err error) {
	o, source, err := s.outboxAndSource(ctx)
	if err == nil {
		err = s.one(ctx, reading, func(row pgx.Row) error { return row.Scan(&n) },
			s.sql(o, `SELECT count(*) FROM {dlq} WHERE source = $1 AND replayed_at IS NULL AND discarded_at IS NULL`), source)
	}
	if err != nil {
		return 0, fmt.Errorf("count dead letters: %w", err)
	}
	return n, nil
}

// dieAgain notes in its dead letter that a replayed event was given up once more, and that nothing has become of it after
// all. Its attempts are those of all its lives; whether it holds its lane is decided anew. False: it was published before, and
// never a dead letter.
func (s *Store) dieAgain(ctx context.Context, tx pgx.Tx, o *Outbox, source int32, d *Dead) (found bool, err error) {
	p := new(params).int4(source)
	if err := p.id(o.IDType, d.Event.ID); err != nil {
		return false, err
	}
	p.int4(int32(d.Attempts)).text(string(d.Class)).text(clean(d.Code)).text(clean(d.Text)).boolean(d.Holds)
	result := tx.Conn().PgConn().ExecParams(ctx, s.names.sql(`UPDATE {dlq} SET attempts = attempts + $3, error_class = $4, error_code = $5, last_error = $6,
 holds = $7, dead_at = now(), replayed_at = NULL, discarded_at = NULL WHERE source = $1 AND original_id = $2`), p.values, p.oids, p.formats, nil).Read()
	if result.Err != nil {
		return false, fmt.Errorf("note the death of the replayed event %.64q: %w", d.Event.ID, result.Err)
	}
	return result.CommandTag.RowsAffected() > 0, nil
}

// extra keeps the further columns under their names, as text.
func (s *Store) extra(values [][]byte) ([]byte, error) {
	if len(values) == 0 {
		return nil, nil
	}
	object := make(map[string]*string, len(values))
	for i, name := range s.config.Columns.Extra {
		if i < len(values) && values[i] != nil {
			text := valid(string(values[i]))
			object[name] = &text
		} else {
			object[name] = nil
		}
	}
	return json.Marshal(object)
}

// clean makes a text that Postgres takes: valid UTF-8, no NUL, not endless.
func clean(text string) string {
	if len(text) > maxErrorText {
		text = text[:maxErrorText]
	}
	return valid(text)
}

// valid makes a text that Postgres takes, however long.
func valid(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?")
}
