package desk

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

const raiseSQL = `INSERT INTO {alarms} AS a (source, kind, topic, partition, detail, repair, first_seen, last_seen,
 count) VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8)
ON CONFLICT (source, kind, topic) WHERE acknowledged_at IS NULL
DO UPDATE SET partition = excluded.partition, detail = excluded.detail, repair = excluded.repair,
 last_seen = excluded.last_seen,
 count = a.count + excluded.count`

// RaiseAlarm keeps an alarm, which was seen Count times more, until someone acknowledges it. It needs no fence: what a
// relay saw at a broker is true, whichever relay holds the slot.
func (s *Desk) RaiseAlarm(ctx context.Context, a record.Alarm) error {
	_, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		err = s.db.Tx(ctx, db.Writing, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, s.db.Names.SQL(raiseSQL), source, a.Kind, a.Topic, a.Partition, s.db.Clean(a.Text), a.Repair,
				a.At, a.Count)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("keep an alarm: %w", err)
	}
	return nil
}

const alarmsSQL = `SELECT id, kind, topic, partition, detail, repair, first_seen, last_seen, count, acknowledged_at,
 coalesce(acknowledged_by, ''), coalesce(acknowledged_note, '') FROM {alarms}
WHERE source = $1 AND (acknowledged_at IS NULL OR $2)
ORDER BY acknowledged_at IS NOT NULL, id DESC LIMIT $3`

// alarmsMost is how many alarms are listed.
const alarmsMost = 1000

// Alarms lists alarms, those that no one has acknowledged, or all; the open ones first, then the newest first.
func (s *Desk) Alarms(ctx context.Context, all bool) ([]record.Alarm, error) {
	_, source, err := s.db.TableAndSource(ctx)
	list := []record.Alarm{}
	if err == nil {
		err = s.db.Tx(ctx, db.Reading, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, s.db.Names.SQL(alarmsSQL), source, all, alarmsMost)
			if err == nil {
				list, err = pgx.CollectRows(rows, scanAlarm)
			}
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("read alarms: %w", err)
	}
	return list, nil
}

func scanAlarm(row pgx.CollectableRow) (a record.Alarm, err error) {
	err = row.Scan(&a.ID, &a.Kind, &a.Topic, &a.Partition, &a.Text, &a.Repair, &a.FirstSeen, &a.At, &a.Count,
		&a.AckedAt, &a.AckedBy, &a.AckedNote)
	a.FirstSeen, a.At = a.FirstSeen.UTC(), a.At.UTC()
	return a, err
}

// AckAlarms notes that a person has looked at open alarms, those with the numbers or all of them, and says which they
// were. Anybody may: it is not fenced. [record.ErrNoAlarm]: a number is no open alarm's; nothing is acknowledged then.
func (s *Desk) AckAlarms(ctx context.Context, ids []int64, all bool, who, note string) (acked []int64, err error) {
	_, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		err = s.db.Tx(ctx, db.Writing, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, s.db.Names.SQL(`UPDATE {alarms} SET acknowledged_at = now(), acknowledged_by = $4,
 acknowledged_note = NULLIF($5, '')
WHERE source = $1 AND acknowledged_at IS NULL AND ($2 OR id = ANY ($3)) RETURNING id`),
				source, all, ids, s.db.Brief(who, maxWho), s.db.Brief(note, maxNote))
			if err == nil {
				acked, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			}
			for _, id := range ids {
				if err == nil && !slices.Contains(acked, id) {
					err = fmt.Errorf("%w %d", record.ErrNoAlarm, id)
				}
			}
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("acknowledge alarms: %w", err)
	}
	slices.Sort(acked)
	return acked, nil
}
