package catalog

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
)

// rights collects the statements that give a role what it lacks to create a relay's tables and publication.
type rights struct {
	s              *Catalog
	tx             pgx.Tx
	role, database string
	statements     []string
}

// InitLacks are the statements that give the role of this connection what it lacks to create what is missing, and to
// read what is there. It reads the catalog only, so that it can be asked when something was refused. What the stream's
// role lacks it does not know.
func (s *Catalog) InitLacks(ctx context.Context, publication string) (role string, statements []string, err error) {
	err = s.db.Tx(ctx, db.Reading, func(tx pgx.Tx) error {
		r := rights{s: s, tx: tx}
		err := tx.QueryRow(ctx, "SELECT current_user::text, current_database()::text").Scan(&r.role, &r.database)
		for _, look := range []func(context.Context) error{r.schemas, r.tables} {
			if err == nil {
				err = look(ctx)
			}
		}
		if err == nil {
			err = r.publication(ctx, publication)
		}
		role, statements = r.role, r.statements
		return err
	})
	if err != nil {
		return role, nil, fmt.Errorf("look for what the role lacks: %w", err)
	}
	return role, statements, nil
}

func (r *rights) lacks(what string) {
	statement := "GRANT " + what + " TO " + db.Quote(r.role) + ";"
	if !slices.Contains(r.statements, statement) {
		r.statements = append(r.statements, statement)
	}
}

// createInDatabase is for schemas and publications.
func (r *rights) createInDatabase(ctx context.Context) error {
	var may bool
	err := r.tx.QueryRow(ctx, "SELECT has_database_privilege(current_database(), 'CREATE')").Scan(&may)
	if err == nil && !may {
		r.lacks("CREATE ON DATABASE " + db.Quote(r.database))
	}
	return err
}

// schemas looks whether the role may look into each, and create there what is not there.
func (r *rights) schemas(ctx context.Context) error {
	n := r.s.db.Names
	for schema, tables := range map[string][]string{
		r.s.db.Config.Schema: {n.Version, n.Request, n.View}, n.OutboxSchema: {n.Outbox}, n.DLQSchema: {n.DLQ},
	} {
		var exists, usage, create bool
		err := r.tx.QueryRow(ctx, `SELECT count(*) > 0, coalesce(bool_and(has_schema_privilege(oid, 'USAGE')), false),
 coalesce(bool_and(has_schema_privilege(oid, 'CREATE')), false) FROM pg_namespace WHERE nspname = $1`, schema).
			Scan(&exists, &usage, &create)
		if err == nil && !exists {
			err = r.createInDatabase(ctx)
		}
		if err != nil {
			return err
		}
		if exists && !usage {
			r.lacks("USAGE ON SCHEMA " + db.Quote(schema))
		}
		for _, table := range tables {
			owner, err := r.owner(ctx, table)
			if err != nil {
				return err
			}
			if exists && !create && owner == "" {
				r.lacks("CREATE ON SCHEMA " + db.Quote(schema))
			}
		}
	}
	slices.Sort(r.statements)
	return nil
}

// owner is the owner of a table or view, "" when it does not exist. It asks no privilege.
func (r *rights) owner(ctx context.Context, table string) (name string, err error) {
	const look = `SELECT coalesce(max(pg_get_userbyid(c.relowner)::text), '') FROM pg_class c
 JOIN pg_namespace n ON n.oid = c.relnamespace WHERE
 '"' || replace(n.nspname, '"', '""') || '"."' || replace(c.relname, '"', '""') || '"' = $1`
	err = r.tx.QueryRow(ctx, look, table).Scan(&name)
	return name, err
}

// tables looks whether the role may read the outbox and the version of the relay's tables, and change those that are
// there: a newer version adds to them.
func (r *rights) tables(ctx context.Context) error {
	n := r.s.db.Names
	for _, table := range []string{n.Outbox, n.Version} {
		var may bool
		err := r.tx.QueryRow(ctx, `SELECT coalesce(bool_and(has_table_privilege(c.oid, 'SELECT')), true) FROM pg_class c
 JOIN pg_namespace n ON n.oid = c.relnamespace WHERE
 '"' || replace(n.nspname, '"', '""') || '"."' || replace(c.relname, '"', '""') || '"' = $1`, table).Scan(&may)
		if err != nil {
			return err
		}
		if !may {
			r.lacks("SELECT ON " + table)
		}
	}
	if len(r.statements) > 0 {
		return nil // nor can it be asked which steps are missing
	}
	is, err := r.s.look(ctx, r.tx)
	if err != nil {
		return err
	}
	if missing, err := r.s.plan(ctx, r.tx, is); err != nil || len(missing) == 0 {
		return err
	}
	for _, table := range []string{n.Version, n.DLQ, n.Source} {
		if err := r.owns(ctx, table); err != nil {
			return err
		}
	}
	return nil
}

// owns looks whether the role may do with a table what its owner may.
func (r *rights) owns(ctx context.Context, table string) error {
	owner, err := r.owner(ctx, table)
	if err != nil || owner == "" {
		return err
	}
	var may bool
	err = r.tx.QueryRow(ctx, "SELECT pg_has_role($1::name, 'USAGE')", owner).Scan(&may)
	if err == nil && !may {
		r.lacks(db.Quote(owner))
	}
	return err
}

// publication looks whether the role may create the publication if there is none.
func (r *rights) publication(ctx context.Context, name string) error {
	var exists bool
	err := r.tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = $1)", name).Scan(&exists)
	if err != nil || exists {
		return err
	}
	if err := r.createInDatabase(ctx); err != nil {
		return err
	}
	return r.owns(ctx, r.s.db.Names.Outbox)
}
