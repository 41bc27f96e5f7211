package table

import (
	"context"
	"fmt"
	"strconv"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// republishRowsSQL numbers all rows of the request, in the table's order, and gives those that are left: journaled
// before it was made, and before its filter's Until, when the audit that asks began to read: what was published later
// may be in a topic that it had read already. And not parked: parking takes an event out of the journal; published, it
// comes back with a time after the request's; dead, it does not come back.
const republishRowsSQL = ` FROM (SELECT o.*, row_number() OVER (ORDER BY {order}
) AS cdc_relay_n FROM {outbox} o WHERE {ours} AND o.{id} = ANY ($2)) o
LEFT JOIN LATERAL (SELECT true AS edited, d.payload, d.headers FROM {dlq} d
 WHERE d.source = $1 AND d.original_id = {oid} AND d.edited_at IS NOT NULL LIMIT 1) e ON true
WHERE (SELECT j.published_at FROM {journal} j WHERE j.source = $1 AND j.event_id = {oid}) <= $3::timestamptz
 AND NOT EXISTS (SELECT FROM {parked} q WHERE q.source = $1 AND q.event_id = {oid})
ORDER BY n LIMIT `

// RepublishRows gives the next rows of a request to republish: at most limit of them, and not many more bytes than 4
// MiB. Row is their number in the table's order among all rows of the request, the same at each call. ErrFenced after a
// takeover by another.
func (s *Reader) RepublishRows(ctx context.Context, r *record.Request, limit int) ([]record.CatchUpRow, error) {
	o, source, err := s.db.TableAndSource(ctx)
	var rows []record.CatchUpRow
	until := r.RequestedAt
	if u := r.Filter.Until; u != nil && u.Before(until) {
		until = *u
	}
	if err == nil {
		p := new(db.Params).Int4(source)
		if err = p.IDs(o.IDType, len(r.Filter.IDs), func(i int) []byte { return []byte(r.Filter.IDs[i]) }); err != nil {
			err = fmt.Errorf("%w: %w", record.ErrFilter, err)
		} else {
			p.Text(until.UTC().Format("2006-01-02T15:04:05.999999Z07:00"))
			rows, err = s.readPage(ctx, o, limit,
				`SELECT cdc_relay_n AS n`+s.editedColumns()+republishRowsSQL+strconv.Itoa(limit), p)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read rows to republish: %w", err)
	}
	return rows, nil
}

// editedColumns are eventColumns, with what was sent of a dead letter that someone edited. Headers can be edited where
// the outbox has none.
func (s *Reader) editedColumns() string {
	c := s.db.Config.Columns
	return s.columns("CASE WHEN e.edited THEN e.payload ELSE "+own(c.Payload)+" END",
		"CASE WHEN e.edited THEN e.headers ELSE "+own(c.Headers)+" END") + ", NULL, NULL"
}
