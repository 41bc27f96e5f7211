package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Grant is one privilege on one thing, which can be missing by itself.
type Grant struct {
	Schema    string // without quotes; set alone for a privilege on the schema
	Table     string // quoted and schema-qualified; "" for the schema itself
	Privilege string // USAGE, SELECT, INSERT, UPDATE, DELETE
	Column    string // without quotes; "" for the whole table
}

// String is the grant as SQL says it, without to whom.
func (g Grant) String() string {
	switch {
	case g.Table == "":
		return g.Privilege + " ON SCHEMA " + quote(g.Schema)
	case g.Column != "":
		return g.Privilege + " (" + quote(g.Column) + ") ON " + g.Table
	}
	return g.Privilege + " ON " + g.Table
}

// Grants are what the SQL side's role needs, and no more, once the tables and the publication exist: reading the outbox
// and updating the columns that a mark sets, and reading and writing the relay's own tables. The stream's role needs LOGIN
// REPLICATION and nothing of this.
func (s *Store) Grants(o Outbox) []Grant {
	n := s.names
	var list []Grant
	seen := map[string]bool{}
	for _, schema := range []string{s.config.Schema, o.Schema, n.dlqSchema} {
		if !seen[schema] {
			seen[schema] = true
			list = append(list, Grant{Schema: schema, Privilege: "USAGE"})
		}
	}
	list = append(list, Grant{Schema: o.Schema, Table: n.outbox, Privilege: "SELECT"})
	if s.deletes() {
		// FOR UPDATE, which skips rows that others hold, asks for UPDATE of a column.
		list = append(list, Grant{Schema: o.Schema, Table: n.outbox, Privilege: "DELETE"},
			Grant{Schema: o.Schema, Table: n.outbox, Privilege: "UPDATE", Column: s.config.Columns.ID})
	}
	for _, column := range o.Columns {
		if o.MarkSet != "" && assigns(o.MarkSet, column) {
			list = append(list, Grant{Schema: o.Schema, Table: n.outbox, Privilege: "UPDATE", Column: column})
		}
	}
	for _, table := range []string{n.view, n.version} {
		list = append(list, Grant{Schema: s.config.Schema, Table: table, Privilege: "SELECT"})
	}
	for _, table := range []string{n.source, n.epoch, n.state, n.journal, n.batch, n.parked, n.catchUp, n.offset, n.request, n.dlq} {
		schema := s.config.Schema
		if table == n.dlq {
			schema = n.dlqSchema
		}
		for _, privilege := range []string{"SELECT", "INSERT", "UPDATE", "DELETE"} {
			list = append(list, Grant{Schema: schema, Table: table, Privilege: privilege})
		}
	}
	return list
}

// GrantsSQL is a statement for each of Grants.
func (s *Store) GrantsSQL(o Outbox, role string) []string {
	var list []string
	for _, g := range s.Grants(o) {
		list = append(list, "GRANT "+g.String()+" TO "+quote(role))
	}
	return list
}

// MissingGrants are those of Grants that the role of this connection does not have, by itself or through another role. What does
// not exist is not missing a grant.
func (s *Store) MissingGrants(ctx context.Context, o Outbox) (role string, missing []Grant, err error) {
	err = s.tx(ctx, reading, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, "SELECT current_user::text").Scan(&role); err != nil {
			return err
		}
		closed := map[string]bool{} // schemas into which the role cannot look
		for _, g := range s.Grants(o) {
			has := true
			var err error
			switch {
			case g.Table == "":
				err = tx.QueryRow(ctx, "SELECT NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1) OR has_schema_privilege(current_user, (SELECT oid FROM pg_namespace WHERE nspname = $1), $2)", g.Schema, g.Privilege).Scan(&has)
				closed[g.Schema] = err == nil && !has
			case closed[g.Schema]:
			case g.Column != "":
				err = tx.QueryRow(ctx, "SELECT coalesce(has_column_privilege(current_user, to_regclass($1), $2::text, $3), true)", g.Table, g.Column, g.Privilege).Scan(&has)
			default:
				err = tx.QueryRow(ctx, "SELECT coalesce(has_table_privilege(current_user, to_regclass($1), $2), true)", g.Table, g.Privilege).Scan(&has)
			}
			if err != nil {
				return fmt.Errorf("look for %s: %w", g, err)
			}
			if !has {
				missing = append(missing, g)
			}
		}
		return nil
	})
	return role, missing, err
}

// Roles names the two roles that a relay can run with.
type Roles struct{ Stream, SQL string }

// RolesSQL are the statements that make the roles, where they are missing, and give them what they need and no more. They have no
// passwords yet. It takes a role that may create roles, and one of REPLICATION; mostly a superuser.
func (s *Store) RolesSQL(ctx context.Context, o Outbox, roles Roles) (statements []string, err error) {
	err = s.tx(ctx, reading, func(tx pgx.Tx) error {
		var database string
		if err := tx.QueryRow(ctx, "SELECT current_database()::text").Scan(&database); err != nil {
			return err
		}
		for _, r := range []struct{ name, attributes string }{{roles.Stream, "LOGIN REPLICATION"}, {roles.SQL, "LOGIN"}} {
			var exists, fits bool
			if err := tx.QueryRow(ctx, "SELECT count(*) > 0, coalesce(bool_and(rolcanlogin AND (rolreplication OR NOT $2)), false) FROM pg_roles WHERE rolname = $1",
				r.name, strings.Contains(r.attributes, "REPLICATION")).Scan(&exists, &fits); err != nil {
				return err
			}
			switch {
			case !exists:
				statements = append(statements, "CREATE ROLE "+quote(r.name)+" "+r.attributes)
			case !fits:
				statements = append(statements, "ALTER ROLE "+quote(r.name)+" "+r.attributes)
			}
			statements = append(statements, "GRANT CONNECT ON DATABASE "+quote(database)+" TO "+quote(r.name))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for the roles: %w", err)
	}
	return append(statements, s.GrantsSQL(o, roles.SQL)...), nil
}

// Apply runs statements in one transaction.
func (s *Store) Apply(ctx context.Context, statements []string) error {
	return s.tx(ctx, writing, func(tx pgx.Tx) error {
		for _, statement := range statements {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	})
}
