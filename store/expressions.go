package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// CheckExpressions lets Postgres parse what the configuration puts into SQL: outbox.published_when, order_by and
// mark_set. It runs nothing and names every key that is wrong. Parsing needs an instant of a lock on the outbox that
// only a migration's lock keeps out; then the error is transient.
func (s *Store) CheckExpressions(ctx context.Context) error {
	o, err := s.Outbox(ctx)
	if err != nil {
		return err
	}
	checks := []struct{ key, statement string }{
		{"outbox.published_when", `SELECT 1 FROM {outbox} o WHERE {published}`},
		{"outbox.order_by", "SELECT row_number() OVER (ORDER BY {order}\n) FROM {outbox} o"},
	}
	if o.MarkSet != "" {
		checks = append(checks, struct{ key, statement string }{"outbox.mark_set", "UPDATE {outbox} SET {mark}\nWHERE false"})
	}
	var problems []error
	for _, c := range checks {
		err := s.tx(ctx, reading, func(tx pgx.Tx) error {
			_, err := tx.Conn().PgConn().Prepare(ctx, "", s.sql(&o, c.statement), nil) // unnamed: gone with the next statement
			return err
		})
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", c.key, err))
		}
	}
	return errors.Join(problems...)
}
