package catalog

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// Grants returns the least privileges of the SQL role, once the tables and the publication exist: reading the outbox,
// updating the columns that a mark or a failure sets, and using the relay's own tables. The stream's
// role needs LOGIN REPLICATION and nothing of this.
func (s *Catalog) Grants(o record.Outbox) []record.Grant {
	n := s.db.Names
	var list []record.Grant
	seen := map[string]bool{}
	for _, schema := range []string{s.db.Config.Schema, o.Schema, n.DLQSchema} {
		if !seen[schema] {
			seen[schema] = true
			list = append(list, record.Grant{Schema: schema, Privilege: "USAGE"})
		}
	}
	list = append(list, record.Grant{Schema: o.Schema, Table: n.Outbox, Privilege: "SELECT"})
	updates := false
	for _, column := range o.Columns {
		if db.Assigns(o.MarkSet+", "+o.DeadSet+", "+o.RetrySet, column) {
			list = append(list, record.Grant{Schema: o.Schema, Table: n.Outbox, Privilege: "UPDATE", Column: column})
			updates = true
		}
	}
	if s.db.Deletes() {
		list = append(list, record.Grant{Schema: o.Schema, Table: n.Outbox, Privilege: "DELETE"})
		if !updates { // FOR UPDATE, which skips rows that others hold, asks for UPDATE of a column
			list = append(list, record.Grant{Schema: o.Schema, Table: n.Outbox, Privilege: "UPDATE",
				Column: s.db.Config.Columns.ID})
		}
	}
	for _, own := range []struct{ table, privileges string }{
		{n.Version, "SELECT"},
		{n.Source, "SELECT INSERT UPDATE"}, {n.Epoch, "SELECT INSERT UPDATE"}, {n.State, "SELECT INSERT UPDATE"},
		{n.Offset, "SELECT INSERT UPDATE"}, {n.Alarms, "SELECT INSERT UPDATE"},
		{n.Journal, "SELECT INSERT UPDATE DELETE"}, {n.Batch, "SELECT INSERT UPDATE DELETE"},
		{n.Parked, "SELECT INSERT UPDATE DELETE"}, {n.Request, "SELECT INSERT UPDATE DELETE"},
		{n.DLQ, "SELECT INSERT UPDATE DELETE"},
		{n.CatchUp, "SELECT INSERT DELETE"}, {n.Edit, "SELECT INSERT DELETE"},
		{n.Spool, "SELECT INSERT DELETE"},
	} {
		schema := s.db.Config.Schema
		if own.table == n.DLQ {
			schema = n.DLQSchema
		}
		for privilege := range strings.FieldsSeq(own.privileges) {
			list = append(list, record.Grant{Schema: schema, Table: own.table, Privilege: privilege})
		}
	}
	return list
}

// GrantsSQL is a statement for each of Grants.
func (s *Catalog) GrantsSQL(o record.Outbox, role string) []string {
	var list []string
	for _, g := range s.Grants(o) {
		list = append(list, "GRANT "+g.String()+" TO "+db.Quote(role))
	}
	return list
}

// MissingGrants are those of Grants that the role of this connection does not have, by itself or through another role.
// What does not exist is not missing a grant.
func (s *Catalog) MissingGrants(ctx context.Context, o record.Outbox) (role string, missing []record.Grant, err error) {
	err = s.db.Tx(ctx, db.Reading, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, "SELECT current_user::text").Scan(&role); err != nil {
			return err
		}
		closed := map[string]bool{} // schemas into which the role cannot look
		for _, g := range s.Grants(o) {
			has := true
			var err error
			switch {
			case g.Table == "":
				err = tx.QueryRow(ctx,
					"SELECT NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1) OR has_schema_privilege(current_user, (SELECT "+
						"oid FROM pg_namespace WHERE nspname = $1), $2)", g.Schema, g.Privilege).Scan(&has)
				closed[g.Schema] = err == nil && !has
			case closed[g.Schema]:
			case g.Column != "":
				err = tx.QueryRow(ctx, "SELECT coalesce(has_column_privilege(current_user, to_regclass($1), $2::text, $3), true)",
					g.Table, g.Column, g.Privilege).Scan(&has)
			default:
				err = tx.QueryRow(ctx, "SELECT coalesce(has_table_privilege(current_user, to_regclass($1), $2), true)", g.Table,
					g.Privilege).Scan(&has)
			}
			if err != nil {
				return fmt.Errorf("look for %s: %w", g, err)
			}
			if !has {
				missing = append(missing, g)
			}
		}
		lacks, err := executeMessage(ctx, tx, "current_user")
		missing = append(missing, lacks...)
		return err
	})
	return role, missing, err
}

// executeMessage is the grant of the function that writes tokens and requests into the WAL, unless the role has it.
// PUBLIC has, by default.
func executeMessage(ctx context.Context, tx pgx.Tx, role string) ([]record.Grant, error) {
	rows, err := tx.Query(ctx, `SELECT format('pg_catalog.%I(%s)', p.proname, pg_get_function_identity_arguments(p.oid))
 FROM pg_proc p WHERE `+db.Emits+` AND NOT has_function_privilege(`+role+`, p.oid, 'EXECUTE')`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (g record.Grant, err error) {
		g.Privilege = "EXECUTE"
		err = row.Scan(&g.Function)
		return g, err
	})
}

// RolesSQL are the statements that make the roles, where they are missing, and give them what they need and no more.
// They have no passwords yet. It takes a role that may create roles, and one of REPLICATION; mostly a superuser.
func (s *Catalog) RolesSQL(ctx context.Context, o record.Outbox, roles record.Roles) (statements []string, err error) {
	var execute []record.Grant
	err = s.db.Tx(ctx, db.Reading, func(tx pgx.Tx) error {
		var database string
		var policies bool
		if err := tx.QueryRow(ctx, `SELECT current_database()::text,
 coalesce((SELECT relrowsecurity FROM pg_class WHERE oid = $1), false)`, o.OID).Scan(&database, &policies); err != nil {
			return err
		}
		ofSQL := "LOGIN"
		if policies {
			ofSQL = "LOGIN BYPASSRLS"
		}
		for _, r := range []struct{ name, attributes string }{{roles.Stream, "LOGIN REPLICATION"}, {roles.SQL, ofSQL}} {
			var exists, fits bool
			if err := tx.QueryRow(ctx, `SELECT count(*) > 0, coalesce(bool_and(rolcanlogin AND (rolreplication OR NOT $2)
 AND (rolbypassrls OR NOT $3)), false) FROM pg_roles WHERE rolname = $1`,
				r.name, strings.Contains(r.attributes, "REPLICATION"), strings.Contains(r.attributes, "BYPASSRLS")).
				Scan(&exists, &fits); err != nil {
				return err
			}
			switch {
			case !exists:
				statements = append(statements, "CREATE ROLE "+db.Quote(r.name)+" "+r.attributes)
			case !fits:
				statements = append(statements, "ALTER ROLE "+db.Quote(r.name)+" "+r.attributes)
			}
			statements = append(statements, "GRANT CONNECT ON DATABASE "+db.Quote(database)+" TO "+db.Quote(r.name))
		}
		var err error
		execute, err = executeMessage(ctx, tx, "'public'")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for the roles: %w", err)
	}
	for _, g := range execute {
		statements = append(statements, "GRANT "+g.String()+" TO "+db.Quote(roles.SQL))
	}
	return append(statements, s.GrantsSQL(o, roles.SQL)...), nil
}

// Apply runs statements in one transaction.
func (s *Catalog) Apply(ctx context.Context, statements []string) error {
	return s.db.Tx(ctx, db.Writing, func(tx pgx.Tx) error {
		for _, statement := range statements {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	})
}
