package outcome

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// republishSQL makes one event parked that was journaled, so that at each moment it is one of the two.
const republishSQL = `WITH gone AS (DELETE FROM {journal} WHERE source = $1 AND event_id = $2 RETURNING 1)
INSERT INTO {parked} (` + parkedColumns + `, replay) SELECT ` + parkedValues + `, $21 FROM gone
ON CONFLICT DO NOTHING`

// Republish takes events out of the journal, parks them, and counts them in the request, in one transaction: they are
// published once more, and journaled where they are then. Fenced.
func (s *Writer) Republish(ctx context.Context, r *record.Request, events []record.Parked) (parked int64, err error) {
	o, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		err = s.db.Fenced(ctx, db.Writing, func(tx pgx.Tx) error {
			parked, _, err = s.parkEach(ctx, tx, o, source, events, republishSQL,
				func(p *db.Params, _ *record.Parked) { p.Int8(r.ID) })
			if err == nil {
				_, err = tx.Exec(ctx, s.db.Names.SQL(`UPDATE {request} SET done = done + $2 WHERE id = $1`), r.ID, parked)
			}
			return err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("park %d events to be republished: %w", len(events), err)
	}
	return parked, nil
}
