package consumers

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// What can be done about events.
const (
	Replay  = "replay"  // a dead letter again; a parked event, and those of its key in front of it, at once
	Discard = "discard" // permanently
)

// Kinds are both.
var Kinds = []string{Replay, Discard}

// portion is how many events one transaction changes.
const portion = 200

// Change is a person's request.
type Change struct {
	Kind     string
	Consumer string
	State    string // Dead or Parked
	Filter   Filter
	Who      string
	Note     string
}

// Done is the result of a change. Names in JSON are stable.
type Done struct {
	Kind     string `json:"kind"`
	Consumer string `json:"consumer"`
	State    string `json:"state"`
	Chosen   int    `json:"chosen"` // when it began
	Done     int    `json:"done"`   // the others were handled, replayed or discarded by someone else at the same time
}

// Do replays or discards what is chosen, in the order of each key, in portions. When it fails in between, what is done
// is done, and said; asking again does the rest.
func (d *Desk) Do(ctx context.Context, c Change) (Done, error) {
	done := Done{Kind: c.Kind, Consumer: c.Consumer, State: c.State}
	switch {
	case !slices.Contains(Kinds, c.Kind):
		return done, fmt.Errorf("%w: kind: found %.20q; allowed: %s", store.ErrFilter, c.Kind, strings.Join(Kinds, ", "))
	case numberOf[c.State] == "":
		return done, fmt.Errorf("%w: state: found %.20q; allowed to change: %s, %s", store.ErrFilter, c.State, Dead, Parked)
	}
	if err := c.Filter.Check(); err != nil {
		return done, err
	}
	rows, err := d.chosen(ctx, c.Consumer, c.State, c.Filter)
	if err != nil {
		return done, fmt.Errorf("%s events of %s: %w", c.Kind, c.Consumer, d.explained(err))
	}
	done.Chosen = len(rows)
	for part := range slices.Chunk(rows, portion) {
		n, err := d.doPart(ctx, c, part)
		if err != nil {
			return done, fmt.Errorf("%s events of %s, after %d of %d: %w", c.Kind, c.Consumer, done.Done, done.Chosen,
				d.explained(err))
		}
		done.Done += n
	}
	return done, nil
}

// doPart calls the inbox's own function for each row. Postgres evaluates it in the order of the subquery.
func (d *Desk) doPart(ctx context.Context, c Change, rows []int64) (n int, err error) {
	table := map[string]string{Dead: "inbox_dead", Parked: "inbox_parked"}[c.State]
	statement := d.sql(fmt.Sprintf(`SELECT count(*) FILTER (WHERE inbox_%s($1, o.event_id, by => $2, note => $3,
			source_name => o.source_name))
		FROM (SELECT l.event_id, coalesce(s.name, '') AS source_name
			FROM unnest($4::bigint[]) WITH ORDINALITY AS u (number, place)
			JOIN %s l ON l.%s = u.number LEFT JOIN inbox_source s ON s.source = l.source
			WHERE l.consumer = (SELECT i.consumer FROM inbox_consumer i WHERE i.name = $1)
			ORDER BY u.place OFFSET 0) o`, c.Kind, table, numberOf[c.State]))
	err = store.ReadWrite(ctx, d.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '"+lockTimeout+"'"); err != nil {
			return err
		}
		return tx.QueryRow(ctx, statement, c.Consumer, c.Who, c.Note, rows).Scan(&n)
	})
	return n, err
}
