package ledger

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Conflict is an event of a claim that someone has decided before.
type Conflict struct {
	Place int // in the claim's list
	State State

	at time.Time
}

// Claim enters the events as done, in the caller's transaction, except for those that it returns. It waits at most
// LockWait for a transaction that has one of them.
func (l *Ledger) Claim(ctx context.Context, tx *Tx, ids []ID) ([]Conflict, error) {
	sources, events := columns(ids)
	known, seen := l.known()
	tx.seen = seen
	rows, err := tx.Query(ctx, "SELECT place, state, decided FROM "+l.schema+
		"inbox_claim_events($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
		append(known, sources, events)...)
	if err != nil {
		return nil, fmt.Errorf("claim %d events: %w", len(ids), setBack(err))
	}
	conflicts, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Conflict, err error) {
		err = row.Scan(&c.Place, &c.State, &c.at)
		c.Place-- // SQL counts from 1
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("claim %d events: %w", len(ids), setBack(err))
	}
	l.met(ids, conflicts)
	for place, id := range ids {
		if !slices.ContainsFunc(conflicts, func(c Conflict) bool { return c.Place == place }) {
			tx.entered = id
			break
		}
	}
	return conflicts, nil
}

func columns(ids []ID) (sources []int16, events []string) {
	sources, events = make([]int16, len(ids)), make([]string, len(ids))
	for i, id := range ids {
		sources[i], events[i] = id.Source, id.Event
	}
	return sources, events
}

// Claimer is the number under which the transaction, or a part of it, entered what Claim did; "" if that was nothing.
func (tx *Tx) Claimer(ctx context.Context) (xmin string, err error) {
	if tx.entered.Event == "" {
		return "", nil
	}
	err = tx.QueryRow(ctx, `SELECT xmin::text FROM `+tx.l.schema+`inbox_event
		WHERE consumer = $1 AND source = $2 AND event_id = $3`, plannedNow, tx.l.consumer, tx.entered.Source,
		tx.entered.Event).Scan(&xmin)
	return xmin, err
}

// Unclaim takes back what Claim entered in a transaction that was committed before its time.
func (l *Ledger) Unclaim(ctx context.Context, ids []ID, claimer string) error {
	sources, events := columns(ids)
	return l.within(ctx, "take back claims", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM `+l.schema+`inbox_event e
			USING unnest($2::smallint[], $3::text[]) AS u (source, id)
			WHERE e.consumer = $1 AND e.source = u.source AND e.event_id = u.id AND e.state = 0
			AND e.xmin::text = $4`, plannedNow, l.consumer, sources, events, claimer)
		return err
	})
}

// HandBack takes back what Claim entered in this transaction.
func (l *Ledger) HandBack(ctx context.Context, tx *Tx, ids []ID) error {
	sources, events := columns(ids)
	_, err := tx.Exec(ctx, `DELETE FROM `+l.schema+`inbox_event e
		USING unnest($2::smallint[], $3::text[]) AS u (source, id)
		WHERE e.consumer = $1 AND e.source = u.source AND e.event_id = u.id`, plannedNow, l.consumer, sources,
		events)
	if err != nil {
		return fmt.Errorf("hand back events: %w", err)
	}
	return nil
}
