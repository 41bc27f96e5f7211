package desk

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// outcomesSQL sorts the dead letters of a replay by what became of them. What is parked and was not tried since has
// no reason of its own: the one that it carries is why it died before. So it is with what was not tried because another
// one of its key died again.
const outcomesSQL = `SELECT state, topic, code, min(reason), count(*) FROM (
 SELECT CASE WHEN d.replayed_at IS NOT NULL THEN 'published' WHEN p.event_id IS NOT NULL THEN 'parked'
   WHEN d.discarded_at IS NOT NULL THEN 'discarded' WHEN d.dead_at <= $2 THEN 'stayed behind' ELSE 'died again' END,
  CASE WHEN d.replayed_at IS NULL THEN d.topic ELSE '' END,
  CASE WHEN d.replayed_at IS NOT NULL OR p.event_id IS NULL AND d.dead_at <= $2 THEN ''
   WHEN p.event_id IS NULL THEN d.error_code
   WHEN p.last_error_at IS DISTINCT FROM d.dead_at THEN p.error_class ELSE '' END,
  CASE WHEN d.replayed_at IS NOT NULL OR p.event_id IS NULL AND d.dead_at <= $2 THEN ''
   WHEN p.event_id IS NULL THEN d.last_error
   WHEN p.last_error_at IS DISTINCT FROM d.dead_at THEN coalesce(p.last_error, '') ELSE '' END
 FROM {dlq} d LEFT JOIN {parked} p ON p.source = d.source AND p.event_id = d.original_id AND p.replay = d.replay
 WHERE d.replay = $1) AS became(state, topic, code, reason)
GROUP BY state, topic, code ORDER BY count(*) DESC, state, topic, code`

// Outcomes notes in a replay what became of the dead letters that it has taken so far. Other requests have none.
func (s *Desk) Outcomes(ctx context.Context, r *record.Request) error {
	if r.Kind != record.RequestReplay {
		return nil
	}
	err := s.db.Tx(ctx, scanningFenced, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.db.Names.SQL(outcomesSQL), r.ID, r.RequestedAt)
		if err != nil {
			return err
		}
		r.Outcomes, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (o record.Outcome, err error) {
			err = row.Scan(&o.State, &o.Topic, &o.Code, &o.Reason, &o.Events)
			o.Reason = s.db.Clean(o.Reason)
			return o, err
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("look up the outcome of request %d: %w", r.ID, err)
	}
	return nil
}
