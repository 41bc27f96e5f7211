package record

import (
	"fmt"

	"github.com/jackc/pgx/v5"
)

// ExpressionError reports that Postgres does not take what a key of the configuration, or its default, puts into SQL.
type ExpressionError struct {
	Key   string // outbox.mark_set
	Value string
	Fix   string
	Err   error // what the server said
}

func (e *ExpressionError) Error() string {
	return fmt.Sprintf("%s (%s): Postgres refuses it: %v", e.Key, e.Value, e.Err)
}

func (e *ExpressionError) Unwrap() error { return e.Err }

// ExpressionErrors are all that the error is made of.
func ExpressionErrors(err error) (list []*ExpressionError) {
	switch e := err.(type) { //nolint:errorlint // it walks the tree of wrapped errors itself
	case *ExpressionError:
		return []*ExpressionError{e}
	case interface{ Unwrap() error }:
		return ExpressionErrors(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			list = append(list, ExpressionErrors(one)...)
		}
	}
	return list
}

// ObstacleError reports that something has a name that the relay needs, and is not the relay's. It is left as it is.
type ObstacleError struct{ What, Fix string }

func (e *ObstacleError) Error() string { return e.What + ": it is left as it is; " + e.Fix }

// Grant is one privilege on one thing, which can be missing by itself.
type Grant struct {
	Schema    string // without quotes; set alone for a privilege on the schema
	Table     string // quoted and schema-qualified; "" for the schema itself
	Privilege string // USAGE, SELECT, INSERT, UPDATE, DELETE, EXECUTE
	Column    string // without quotes; "" for the whole table
	Function  string // as GRANT names it; "" but for EXECUTE
}

// String is the grant as SQL says it, without to whom.
func (g Grant) String() string {
	switch {
	case g.Function != "":
		return g.Privilege + " ON FUNCTION " + g.Function
	case g.Table == "":
		return g.Privilege + " ON SCHEMA " + quote(g.Schema)
	case g.Column != "":
		return g.Privilege + " (" + quote(g.Column) + ") ON " + g.Table
	}
	return g.Privilege + " ON " + g.Table
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// Roles names the two roles that a relay can run with.
type Roles struct{ Stream, SQL string }

// Problem is one thing that is wrong, with the SQL that repairs it.
type Problem struct {
	What   string
	Repair string
}
