package lease

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// walsenderSQL: of a session that it may not see, a role is shown no backend_type; of its position only
// pg_read_all_stats is told, though the session be the role's own.
const walsenderSQL = `SELECT a.backend_type IS NOT NULL, coalesce(a.wait_event_type, ''), coalesce(a.wait_event, ''),
 r.sent_lsn::text, coalesce(s.spill_txns, 0), coalesce(s.spill_bytes, 0)
FROM (SELECT $1::int AS pid, $2::text AS slot) q
LEFT JOIN pg_stat_activity a ON a.pid = q.pid
LEFT JOIN pg_stat_replication r ON r.pid = q.pid
LEFT JOIN pg_stat_replication_slots s ON s.slot_name = q.slot`

// Walsender reads what the server's process pid, which streams from the slot, is at.
func (s *Lease) Walsender(ctx context.Context, pid uint32) (w record.Walsender, err error) {
	var sent *string
	err = s.db.One(ctx, db.Reading, func(row pgx.Row) error {
		return row.Scan(&w.Visible, &w.Waits, &w.WaitsFor, &sent, &w.SpilledTransactions, &w.SpilledBytes)
	}, walsenderSQL, int32(pid), s.db.Config.Slot)
	if err == nil && sent != nil {
		var lsn outbox.LSN
		lsn, err = outbox.ParseLSN(*sent)
		w.Sent = &lsn
	}
	if err != nil {
		return record.Walsender{}, fmt.Errorf("read what the walsender of slot %q is at: %w", s.db.Config.Slot, err)
	}
	return w, nil
}
