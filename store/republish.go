package store

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// republishRowsSQL numbers all rows of the request, in the table's order, and gives those that are left: journaled before it
// was made, and neither parked nor a dead letter. One that was republished is journaled after it.
const republishRowsSQL = ` FROM (SELECT o.*, row_number() OVER (ORDER BY {order}
) AS cdc_relay_n FROM {outbox} o WHERE o.{id} = ANY ($2)) o
WHERE (SELECT j.published_at FROM {journal} j WHERE j.source = $1 AND j.event_id = {oid}) <= $3::timestamptz
 AND NOT EXISTS (SELECT FROM {parked} q WHERE q.source = $1 AND q.event_id = {oid})
ORDER BY n LIMIT `

// RepublishRows gives the next rows of a request to republish: at most limit of them, and not many more bytes than 4 MiB. Row
// is their number in the table's order among all rows of the request, the same at each call.
func (s *Store) RepublishRows(ctx context.Context, r *Request, limit int) ([]CatchUpRow, error) {
	o, source, err := s.outboxAndSource(ctx)
	var rows []CatchUpRow
	if err == nil {
		p := new(params).int4(source)
		if err = p.ids(o.IDType, len(r.Filter.IDs), func(i int) []byte { return []byte(r.Filter.IDs[i]) }); err != nil {
			err = fmt.Errorf("%w: %w", ErrFilter, err)
		} else {
			p.text(r.RequestedAt.UTC().Format("2006-01-02T15:04:05.999999Z07:00"))
			rows, err = s.readPage(ctx, o, limit, `SELECT cdc_relay_n AS n`+s.eventColumns()+republishRowsSQL+strconv.Itoa(limit), p)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read rows to republish: %w", err)
	}
	return rows, nil
}

// republishSQL makes one event parked that was journaled, so that at each moment it is one of the two.
const republishSQL = `WITH gone AS (DELETE FROM {journal} WHERE source = $1 AND event_id = $2 RETURNING 1)
INSERT INTO {parked} (` + parkedColumns + `, replay) SELECT ` + parkedValues + `, $21 FROM gone
ON CONFLICT (source, event_id) DO NOTHING`

// Republish takes events out of the journal, parks them, and counts them in the request, in one transaction: they are
// published once more, and journaled where they are then. Fenced.
func (s *Store) Republish(ctx context.Context, r *Request, events []Parked) (parked int64, err error) {
	o, source, err := s.outboxAndSource(ctx)
	if err == nil {
		err = s.fenced(ctx, writing, func(tx pgx.Tx) error {
			parked, err = s.parkEach(ctx, tx, o, source, events, republishSQL, func(p *params) { p.int8(r.ID) })
			if err == nil {
				_, err = tx.Exec(ctx, s.names.sql(`UPDATE {request} SET done = done + $2 WHERE id = $1`), r.ID, parked)
			}
			return err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("park %d events that are to be published once more: %w", len(events), err)
	}
	return parked, nil
}
