package db

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// hiddenSQL looks at the outbox and at the relay's own tables. pg_get_userbyid and the like take no name that a schema
// of the role's could have in its place: they are looked up in SafePath.
const hiddenSQL = `SELECT n.nspname::text, c.relname::text, c.oid = $1, c.relkind IN ('r', 'p'),
 row_security_active(c.oid), pg_has_role(c.relowner, 'USAGE'), current_user::text,
 ARRAY(SELECT r.rulename::text FROM pg_rewrite r WHERE r.ev_class = c.oid AND r.ev_type::text = ANY
  (CASE WHEN c.oid = $1 THEN $6::text[] ELSE '{2,3,4}'::text[] END) ORDER BY r.rulename)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = $1 OR n.nspname = $2 AND c.relname = ANY ($3) OR n.nspname = $4 AND c.relname = $5
ORDER BY c.oid <> $1, n.nspname, c.relname`

// own are the names of the relay's tables in its schema.
var own = []string{"cdc_relay_source", "cdc_relay_epoch", "cdc_relay_state", "cdc_relay_journal",
	"cdc_relay_journal_batch", "cdc_relay_parked", "cdc_relay_catch_up", "cdc_relay_schema", "cdc_relay_offset",
	"cdc_relay_request", "cdc_relay_alarms", "cdc_relay_edit", "cdc_relay_spool"}

// checkHidden returns a [record.HiddenError] where this role sees, or changes, other rows of a table than there are: by
// a row security policy, a rule, or a view in the table's place. The stream knows of none of these.
func (s *DB) checkHidden(ctx context.Context, tx pgx.Tx, o *Table) error {
	const update, remove = "2", "4" // of pg_rewrite.ev_type; what the application inserts is its own affair
	used := []string{}
	if o.MarkSet+o.DeadSet+o.RetrySet != "" {
		used = append(used, update)
	}
	if s.Deletes() {
		used = append(used, remove)
	}
	rows, err := tx.Query(ctx, hiddenSQL, o.OID, s.Config.Schema, own, s.Names.DLQSchema, s.Names.dlqTable, used)
	if err != nil {
		return err
	}
	var all record.HiddenError
	var schema, name, role string
	var is, table, policies, owns bool
	var rules []string
	_, err = pgx.ForEachRow(rows, []any{&schema, &name, &is, &table, &policies, &owns, &role, &rules}, func() error {
		quoted := Quote(schema, name)
		switch {
		case !table:
			all.Add(fmt.Sprintf("%s is not a table", quoted), fmt.Sprintf("drop or rename it, then run cdc-relay init; "+
				"%s must be a table", quoted))
		case policies && is && owns:
			all.Add(fmt.Sprintf("row security is forced on %s, so that it hides rows from its owner %s", quoted, role),
				"ALTER TABLE "+quoted+" NO FORCE ROW LEVEL SECURITY;")
		case policies && is:
			all.Add(fmt.Sprintf("row security policies of %s apply to role %s, which would see other rows than the stream",
				quoted, role), "ALTER ROLE "+Quote(role)+" BYPASSRLS; (as a superuser; a policy for the role is not enough, since "+
				"another one could hide rows again)")
		case policies:
			all.Add(fmt.Sprintf("row security is on for the relay's own table %s, and applies to role %s", quoted, role),
				"ALTER TABLE "+quoted+" DISABLE ROW LEVEL SECURITY;")
		}
		for _, rule := range rules {
			all.Add(fmt.Sprintf("rule %s of %s changes what statements do to it", Quote(rule), quoted),
				"DROP RULE "+Quote(rule)+" ON "+quoted+";")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for what hides rows: %w", err)
	}
	if len(all.What) == 0 {
		return nil
	}
	return &all
}
