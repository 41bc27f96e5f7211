package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// StateOf is how an event stands with a consumer; false: it is not decided yet.
func StateOf(ctx context.Context, pool *pgxpool.Pool, schema, consumer, id, source string) (string, bool, error) {
	id, err := fit(ctx, pool, id)
	if err != nil {
		return "", false, err
	}
	var state *string
	err = pool.QueryRow(ctx, "SELECT "+prefix(schema)+"inbox_state($1, $2, $3)", consumer, id, source).Scan(&state)
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
	for _, text := range []*string{&id, &by, &note} {
		if *text, err = fit(ctx, pool, *text); err != nil {
			return false, err
		}
	}
	err = pool.QueryRow(ctx, "SELECT "+prefix(schema)+function+"($1, $2, $3, $4)", consumer, id, by, note).Scan(&done)
	if err != nil {
		return false, fmt.Errorf("%s of %s: %w", function, id, err)
	}
	return done, nil
}
