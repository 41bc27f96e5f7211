package ledger

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"
	"text/template"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed *.sql
var files embed.FS

// A step is never changed after a release. A later version adds one that is safe while the release before it runs.
var steps = []string{
	"inbox_0001.sql", "inbox_0002.sql", "inbox_0003.sql", "inbox_0004.sql", "inbox_0005.sql", "inbox_0006.sql",
	"inbox_0007.sql", "inbox_0008.sql", "inbox_0009.sql", "inbox_0010.sql", "inbox_0011.sql",
}

// migrateLock keeps two programs from migrating at once.
const migrateLock = 0x696e626f78 // "inbox"

// Migrate creates what is missing in the schema, which it creates too. It does nothing where all is there.
func Migrate(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	done, _, err := current(ctx, pool, schema)
	if done {
		return nil // also without the right to create anything
	}
	if err == nil {
		err = restoring(ctx, pool)
	}
	if err != nil {
		return err
	}
	return upgrade(ctx, pool, schema)
}

// Update brings tables that are there up to date. It creates none: a process that has worked with them finds them gone
// while they are restored, and tables of its own would be in the restore's way.
func Update(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	done, version, err := current(ctx, pool, schema)
	switch {
	case done:
		return nil
	case err != nil:
		return err
	case version == 0:
		return fmt.Errorf("%w: schema %s has no inbox_version any more. If a restore runs, wait for its end. "+
			"To create an empty inbox instead, start this program again", ErrUnfinished, schema)
	}
	if err := restoring(ctx, pool); err != nil {
		return err
	}
	return upgrade(ctx, pool, schema)
}

// current reads the version, 0 for none, and reports whether it is this program's.
func current(ctx context.Context, pool *pgxpool.Pool, schema string) (done bool, version int, err error) {
	err = pool.QueryRow(ctx, "SELECT version FROM "+prefix(schema)+"inbox_version").Scan(&version)
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows), errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "3F000"):
		return false, 0, nil
	case err != nil:
		return false, 0, fmt.Errorf("read inbox_version in schema %s: %w", schema, err)
	}
	return version >= len(steps), version, nil
}

// restoring returns an error while pg_restore is connected to the database: tables that another program creates or
// fills in the meantime make it fail.
func restoring(ctx context.Context, pool *pgxpool.Pool) error {
	var running bool
	err := pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'pg_restore')`).Scan(&running)
	if err == nil && running {
		err = fmt.Errorf("%w: pg_restore is connected to the database; waiting for its end", ErrUnfinished)
	}
	return err
}

// complete returns an error if a table of the inbox lacks its primary key, which a restore makes last, or if pg_restore
// is at work.
func complete(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	var lacking []string
	err := pool.QueryRow(ctx, `SELECT array_agg(t) FROM unnest($2::text[]) t WHERE NOT EXISTS (
		SELECT FROM pg_index i WHERE i.indrelid = to_regclass($1 || t) AND i.indisprimary)`, prefix(schema),
		[]string{"inbox_consumer", "inbox_source", "inbox_event", "inbox_parked", "inbox_dead", "inbox_offset",
			"inbox_suspect"}).Scan(&lacking)
	if err != nil {
		return fmt.Errorf("look for the inbox's tables: %w", err)
	}
	if len(lacking) > 0 {
		return fmt.Errorf("%w: in schema %s these are missing or have no primary key: %s. If a restore runs, wait for its "+
			"end. Otherwise create them with inbox.Migrate or cdc-relay init --inbox", ErrUnfinished, schema,
			strings.Join(lacking, ", "))
	}
	return restoring(ctx, pool)
}

func upgrade(ctx context.Context, pool *pgxpool.Pool, schema string) error {
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
	if version == 0 {
		err := tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", prefix(schema)+"inbox_event").Scan(&there)
		if err != nil {
			return err
		}
		if there {
			return fmt.Errorf("%w: inbox_event exists but inbox_version has no row: did a restore end early?",
				ErrUnfinished)
		}
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
