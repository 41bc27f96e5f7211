package desk

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// keptInTable is a condition on a dead letter d: its payload and headers are in the outbox only, since the row was too
// large to be read. Who edits it gives it others.
const keptInTable = `(d.error_code = '` + outbox.EventTooLarge + `' AND d.payload IS NULL AND d.edited_at IS NULL)`

// tableRow is the outbox's row of a dead letter d, if it is not larger than the bound by now.
func (s *Desk) tableRow(o *db.Table) string {
	return s.db.SQL(o, `{outbox} o WHERE {ours} AND {oid} = d.original_id AND NOT `) +
		db.Larger(s.db.Config.MaxRow, s.tableColumn(s.db.Config.Columns.Payload), s.tableColumn(s.db.Config.Columns.Headers))
}

func (s *Desk) tableColumn(name string) string {
	if name == "" {
		return "NULL"
	}
	return "o." + db.Quote(name)
}

// readable leaves out dead letters whose payload is in the outbox and cannot be read there.
func (s *Desk) readable(o *db.Table) string {
	return " AND (NOT " + keptInTable + " OR EXISTS (SELECT FROM " + s.tableRow(o) + "))"
}

// payloadOf is the payload of a dead letter d as bytes, from where it is.
func (s *Desk) payloadOf(o *db.Table) string {
	column := s.tableColumn(s.db.Config.Columns.Payload)
	if o.PayloadType != "bytea" {
		column = db.ToBytes(column + "::text")
	}
	return "CASE WHEN " + keptInTable + " THEN (SELECT " + column + " FROM " + s.tableRow(o) + ") ELSE " +
		payloadBytes(o) + " END"
}

// headersOf are the headers of a dead letter d as text, from where they are.
func (s *Desk) headersOf(o *db.Table) string {
	return "CASE WHEN " + keptInTable + " THEN (SELECT (" + s.tableColumn(s.db.Config.Columns.Headers) + ")::text FROM " +
		s.tableRow(o) + ") ELSE d.headers::text END"
}

// refuseKept says, when a replay has done what can be done, that the payloads of some dead letters cannot be read.
func (s *Desk) refuseKept(ctx context.Context, tx pgx.Tx, o *db.Table, source int32, r *record.Request) error {
	if r.Kind != record.RequestReplay {
		return nil
	}
	all := *r
	all.Kind = record.RequestDiscard // which takes them, too
	var c conditions
	if err := s.ofRequest(&c, o, source, &all); err != nil {
		return err
	}
	c.text.WriteString(" AND " + keptInTable + " AND NOT EXISTS (SELECT FROM " + s.tableRow(o) + ")")
	var n int64
	err := tx.QueryRow(ctx, s.db.Names.SQL(`SELECT count(*) FROM {dlq} d WHERE `+c.text.String()), c.args...).Scan(&n)
	if err != nil || n == 0 {
		return err
	}
	return fmt.Errorf("%w: %d dead letters are not replayed (%s): their rows are larger than limits.max_event_bytes, or "+
		"gone from the table; raise the limit, restart the relay and replay, or discard them", record.ErrCannot, n,
		outbox.EventTooLarge)
}
