package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// expression is SQL from one key. Each of the statements holds it once, at another kind of place: what closes
// a bracket or a statement too early, to smuggle in one of its own, fits into one of the two at most.
type expression struct {
	key, value, fix string
	statements      []string
}

func expressions(o *db.Table) []expression {
	list := []expression{
		{"outbox.published_when", o.PublishedWhen,
			"set outbox.published_when to one condition on a row, such as published_at IS NOT NULL", []string{
				`SELECT 1 FROM {outbox} o WHERE {published}`,
				"SELECT CASE WHEN {condition}\n THEN 1 END FROM {outbox}", // without another name, as in the status view
			}},
		{"outbox.order_by", o.OrderBy, "set outbox.order_by to columns of the outbox, such as created_at, id", []string{
			"SELECT row_number() OVER (ORDER BY {order}\n) FROM {outbox} o",
			"SELECT 1 FROM {outbox} o ORDER BY {order}\n LIMIT 1",
		}},
	}
	if o.MarkSet != "" {
		list = append(list, expression{"outbox.mark_set", o.MarkSet,
			"set outbox.mark_set to assignments to columns of the outbox, such as processed = true, processed_at = now(), or " +
				"outbox.after_publish: keep", []string{
				"UPDATE {outbox} SET {mark}\n WHERE {id} = ANY (ARRAY(SELECT o.{id} FROM {outbox} o))",
				"WITH marked AS (UPDATE {outbox} SET {mark}\n WHERE {id} IS NULL RETURNING 1) SELECT 1 FROM marked",
			}})
	}
	for _, set := range []struct{ key, list string }{{"dead_set", o.DeadSet}, {"retry_set", o.RetrySet}} {
		if set.list != "" {
			update := "UPDATE {outbox} SET " + set.list + "\n FROM (" + db.FailureSample + ") AS " + db.FailureRow +
				" WHERE {id} IS NULL"
			list = append(list, expression{"outbox." + set.key, set.list, "set outbox." + set.key + " to assignments to " +
				"columns of the outbox, such as status = 'FAILED', last_error = {last_error}, retry_count = {attempts}",
				[]string{update, "WITH shown AS (" + update + " RETURNING 1) SELECT 1 FROM shown"}})
		}
	}
	return list
}

// judging waits for the outbox only as long as it takes others to extend it: it holds a lock of its own already while
// it waits.
var judging = db.Limits{Lock: 250 * time.Millisecond, Statement: 10 * time.Second, Interpreted: true}

// CheckExpressions lets Postgres parse what the configuration puts into SQL: outbox.published_when, order_by,
// mark_set, dead_set and retry_set. It runs nothing. The error joins an [*record.ExpressionError] for every key that is
// wrong, or is trouble with asking. Parsing needs an instant of a lock on the outbox that only a migration's lock keeps
// out; then the error is transient.
func (s *Catalog) CheckExpressions(ctx context.Context) error {
	o, err := s.db.Table(ctx) // a start has just read it
	if err != nil {
		return err
	}
	err = s.db.Tx(ctx, judging, func(tx pgx.Tx) error { return s.takesAll(ctx, tx.Conn().PgConn(), o) })
	if !isRefusal(err) {
		return err
	}
	return s.db.Tx(ctx, judging, func(tx pgx.Tx) error { return s.checkExpressions(ctx, tx, o) })
}

// takesAll asks about all statements in one round trip, which a start has time for. The error is about the first that
// is wrong.
func (s *Catalog) takesAll(ctx context.Context, c *pgconn.PgConn, o *db.Table) error {
	p := c.StartPipeline(ctx)
	for _, e := range expressions(o) {
		for _, statement := range e.statements {
			p.SendPrepare("", s.expressionSQL(o, statement), nil) // unnamed: gone with the next statement
		}
	}
	err := p.Sync()
	for err == nil {
		var result any
		if result, err = p.GetResults(); result == nil {
			break
		}
	}
	return cmp.Or(err, p.Close())
}

func (s *Catalog) expressionSQL(o *db.Table, statement string) string {
	return s.db.SQL(o, strings.ReplaceAll(statement, "{condition}", o.PublishedWhen))
}

func (s *Catalog) checkExpressions(ctx context.Context, tx pgx.Tx, o *db.Table) error {
	var problems []error
	for _, e := range expressions(o) {
		refused, err := s.checkExpression(ctx, tx, o, e)
		if err != nil {
			return fmt.Errorf("parse %s: %w", e.key, err)
		}
		if refused != nil {
			problems = append(problems, &record.ExpressionError{Key: e.key, Value: e.value, Fix: e.fix + qualified(refused),
				Err: refused})
		}
	}
	return errors.Join(problems...)
}

// qualified adds the advice about a name that is not found: expressions are parsed in the catalog alone, whatever
// the role's search_path.
func qualified(err error) string {
	const function, object, table, schema = "42883", "42704", "42P01", "3F000"
	var pg *pgconn.PgError
	if errors.As(err, &pg) && slices.Contains([]string{function, object, table, schema}, pg.Code) {
		return "; names that are not Postgres's own need their schema, as in public.is_sent(state), 'SENT'::public.state " +
			"or " +
			"a OPERATOR(public.=) b"
	}
	return ""
}

// checkExpression says why the server refuses the expression; err is trouble with asking.
func (s *Catalog) checkExpression(ctx context.Context, tx pgx.Tx, o *db.Table, e expression) (refused, err error) {
	for _, statement := range e.statements {
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { // a savepoint, so that the next one can be asked about
			_, err := tx.Conn().PgConn().Prepare(ctx, "", s.expressionSQL(o, statement), nil)
			return err
		})
		if isRefusal(err) {
			return err, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// isRefusal tells a statement that is wrong from one that could not be looked at. The classes are those of syntax and
// names, of data, of features that do not exist, and of a statement that is too complex.
func isRefusal(err error) bool {
	const mayNot = "42501" // of a schema, for which check has its own line
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code == mayNot || len(pg.Code) < 2 {
		return false
	}
	switch pg.Code[:2] {
	case "42", "22", "0A", "54":
		return true
	}
	return false
}
