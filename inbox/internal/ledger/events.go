package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// StateOf is how an event stands with a consumer; false: it is not decided yet.
func StateOf(ctx context.Context, pool *pgxpool.Pool, schema, consumer, id, source string) (string, bool, error) {
	if source == "" {
		var err error
		if source, err = sourceOf(ctx, pool, schema, consumer, id); err != nil {
			return "", false, err
		}
	}
	var state *string
	err := pool.QueryRow(ctx, "SELECT "+prefix(schema)+"inbox_state($1, $2, $3)", consumer, id, source).Scan(&state)
	if err != nil {
		return "", false, fmt.Errorf("look up event %s: %w", id, err)
	}
	if state == nil {
		return "", false, nil
	}
	return *state, true, nil
}

// Decide calls inbox_replay or inbox_discard.
func Decide(
	ctx context.Context, pool *pgxpool.Pool, schema, function, consumer, id, by, note string,
) (done bool, err error) {
	source, err := sourceOf(ctx, pool, schema, consumer, id)
	if err != nil {
		return false, err
	}
	err = pool.QueryRow(ctx, "SELECT "+prefix(schema)+function+"($1, $2, $3, $4, $5)", consumer, id, by, note, source).
		Scan(&done)
	if err != nil {
		return false, fmt.Errorf("%s of %s: %w", function, id, err)
	}
	return done, nil
}

// sourceOf is the source of an event whose id is not a uuid, of the one that the consumer knows: "" if it knows none.
func sourceOf(ctx context.Context, pool *pgxpool.Pool, schema, consumer, id string) (string, error) {
	if IsUUID(id) {
		return "", nil
	}
	rows, err := pool.Query(ctx, "SELECT s.name FROM "+prefix(schema)+"inbox_consumer n, "+prefix(schema)+
		"inbox_source s WHERE n.name = $1 AND EXISTS (SELECT FROM "+prefix(schema)+`inbox_event e
		WHERE e.consumer = n.consumer AND e.source = s.source AND e.event_id = $2) LIMIT 2`, consumer, id)
	if err != nil {
		return "", fmt.Errorf("look for the source of event %s: %w", id, err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	switch {
	case err != nil:
		return "", fmt.Errorf("look for the source of event %s: %w", id, err)
	case len(names) > 1:
		return "", fmt.Errorf("several sources have an event %s: name one in SQL, as source_name", id)
	case len(names) == 0:
		return "", nil
	}
	return names[0], nil
}
