package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
	schema "github.com/cdc-relay/cdc-relay/sql"
)

// What is already there under a name that the relay needs, and is not the relay's, is left alone and named.

// kindOf names the kind of a row of pg_class.
const kindOf = `CASE relkind WHEN 'r' THEN 'table' WHEN 'p' THEN 'table' WHEN 'v' THEN 'view' WHEN 'm' THEN
 'materialized view'
 WHEN 'f' THEN 'foreign table' WHEN 'i' THEN 'index' WHEN 'I' THEN 'index' WHEN 'S' THEN 'sequence' ELSE 'type' END`

// obstacles looks for what the first steps of a part would collide with.
func (s *Catalog) obstacles(ctx context.Context, tx pgx.Tx, is seen) error {
	n := s.db.Names
	if is.versions == nil {
		for _, name := range []string{n.Version, n.Source, n.Epoch, n.State, n.Journal, n.Batch, n.Parked} {
			if err := obstacle(ctx, tx, name, "set postgres.schema to a schema of the relay's own"); err != nil {
				return err
			}
		}
	}
	if is.versions[schema.OutboxPart(n.DLQ)] > 0 {
		return nil
	}
	err := obstacle(ctx, tx, n.DLQ, "set dlq.table to a table that does not exist yet")
	if err == nil && s.db.HasView() {
		err = s.viewObstacle(ctx, tx, is)
	}
	return err
}

// obstacle is an error if something has the name.
func obstacle(ctx context.Context, tx pgx.Tx, name, fix string) error {
	var kind string
	err := tx.QueryRow(ctx, `SELECT coalesce((SELECT `+kindOf+` FROM pg_class WHERE oid = to_regclass($1)), '')`,
		name).Scan(&kind)
	if err == nil && kind != "" {
		err = &record.ObstacleError{Fix: fix,
			What: fmt.Sprintf("a %s %s already exists and is not this relay's", kind, name)}
	}
	return err
}

// viewObstacle is an error if something that is not a relay's view of this outbox has the view's name: two outboxes of
// one name would replace each other's.
func (s *Catalog) viewObstacle(ctx context.Context, tx pgx.Tx, is seen) error {
	fix := "set postgres.schema to a schema of its own for this outbox, or, if the one that is there is not needed, " +
		"DROP VIEW " + s.db.Names.View + ";"
	var kind, shows string
	var made bool
	err := tx.QueryRow(ctx, `SELECT `+kindOf+`, coalesce(obj_description(oid, 'pg_class') LIKE 'made by cdc-relay init%',
 false),
 coalesce((SELECT min(format('%I.%I', n.nspname, t.relname)) FROM pg_rewrite r
  JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass
  JOIN pg_class t ON t.oid = d.refobjid JOIN pg_namespace n ON n.oid = t.relnamespace
  WHERE r.ev_class = c.oid AND t.relname = $2 AND t.oid <> $3), '')
 FROM pg_class c WHERE oid = to_regclass($1)`, s.db.Names.View, s.db.Names.OutboxTable, is.outbox.OID).Scan(&kind,
		&made,
		&shows)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return err
	case shows != "":
		return &record.ObstacleError{Fix: fix, What: fmt.Sprintf("the view %s shows %s, another outbox of this name, and "+
			"init "+
			"for %s would replace it", s.db.Names.View, shows, s.db.Names.Outbox)}
	case kind != "view" || !made && !s.olderView(ctx, tx):
		return &record.ObstacleError{Fix: "set postgres.schema to another schema, or rename the existing one",
			What: fmt.Sprintf("a %s %s already exists and is not this relay's", kind, s.db.Names.View)}
	}
	return nil
}

// ViewName is the view that shows the statuses of the outbox's events, as SQL has it.
func (s *Catalog) ViewName() string { return s.db.Names.View }

// olderView reports whether the view is a relay's of before views had a comment: it reads the relay's own tables.
func (s *Catalog) olderView(ctx context.Context, tx pgx.Tx) (is bool) {
	err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_rewrite r JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass
 AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass
 WHERE r.ev_class = to_regclass($1) AND d.refobjid = to_regclass($2))`, s.db.Names.View, s.db.Names.Journal).Scan(&is)
	return err == nil && is
}

// retyped reports whether the view that is there has an id of another type than the outbox has now: such a view cannot
// be replaced, only made again.
func (s *Catalog) retyped(ctx context.Context, tx pgx.Tx, o db.Table) (is bool, err error) {
	err = tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_attribute v JOIN pg_attribute o ON o.attrelid = $2 AND o.attname
 = $3
 WHERE v.attrelid = to_regclass($1) AND v.attname = 'id' AND (v.atttypid, v.atttypmod) <> (o.atttypid, o.atttypmod))`,
		s.db.Names.View, o.OID, s.db.Config.Columns.ID).Scan(&is)
	return is, err
}
