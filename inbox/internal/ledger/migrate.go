package ledger

import (
	"context"
	"embed"
	"fmt"
	"strings"
	"text/template"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed *.sql
var files embed.FS

// A step is never changed after a release. A later version adds one that is safe while the release before it runs.
var steps = []string{"inbox_0001.sql", "inbox_0002.sql", "inbox_0003.sql", "inbox_0004.sql", "inbox_0005.sql"}

// migrateLock keeps two programs from migrating at once.
const migrateLock = 0x696e626f78 // "inbox"

// Migrate creates what is missing in the schema, which it creates too. It does nothing where all is there.
func Migrate(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	var version int
	known := pool.QueryRow(ctx, "SELECT version FROM "+prefix(schema)+"inbox_version").Scan(&version)
	if known == nil && version >= len(steps) {
		return nil // also without the right to create anything
	}
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", migrateLock); err != nil {
			return err
		}
		return migrate(ctx, tx, schema)
	})
	if err != nil {
		return fmt.Errorf("create the inbox's tables in schema %s: %w", schema, err)
	}
	return nil
}

func migrate(ctx context.Context, tx pgx.Tx, schema string) error {
	var there bool
	if err := tx.QueryRow(ctx, "SELECT to_regnamespace($1) IS NOT NULL", pgx.Identifier{schema}.Sanitize()).
		Scan(&there); err != nil {
		return err
	}
	if !there {
		if _, err := tx.Exec(ctx, "CREATE SCHEMA "+pgx.Identifier{schema}.Sanitize()); err != nil {
			return err
		}
	}
	table := prefix(schema) + "inbox_version"
	if _, err := tx.Exec(ctx, "CREATE TABLE IF NOT EXISTS "+table+" (version integer NOT NULL)"); err != nil {
		return err
	}
	version := 0
	if err := tx.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM "+table).Scan(&version); err != nil {
		return err
	}
	for n := version; n < len(steps); n++ {
		text, err := render(steps[n], schema)
		if err != nil {
			return err
		}
		if _, err := tx.Conn().PgConn().Exec(ctx, text).ReadAll(); err != nil {
			return fmt.Errorf("step %d: %w", n+1, err)
		}
	}
	if version >= len(steps) {
		return nil
	}
	if _, err := tx.Exec(ctx, "DELETE FROM "+table); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "INSERT INTO "+table+" VALUES ($1)", len(steps))
	return err
}

func render(name, schema string) (string, error) {
	t, err := template.New(name).Option("missingkey=error").ParseFS(files, name)
	if err != nil {
		return "", fmt.Errorf("parse %s: %w", name, err)
	}
	var b strings.Builder
	if err := t.Execute(&b, map[string]string{"Schema": pgx.Identifier{schema}.Sanitize()}); err != nil {
		return "", fmt.Errorf("render %s: %w", name, err)
	}
	return b.String(), nil
}
