// Package inbox creates what consumers in other languages than Go need in their database: the tables and functions of
// the module inbox, whose SQL files it has once more, since a module embeds only its own. A test compares them.
//
// Tested in inbox_test.go, and by the command init (cmd/cdc-relay).
package inbox

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

//go:embed *.sql
var files embed.FS

// lock is that of the module's own migration: both may run at once.
const lock = 0x696e626f78

// Plan lists what was created, or would be, of a schema's inbox.
type Plan struct {
	DryRun bool     `json:"dry_run"`
	Schema string   `json:"schema"`
	SQL    []string `json:"sql"` // what was missing, in order
}

// Create creates what the schema lacks of an inbox, and the schema; with a dry run it only says what that is.
func Create(ctx context.Context, conn *pgx.Conn, schema string, dryRun bool) (p Plan, err error) {
	p = Plan{DryRun: dryRun, Schema: schema, SQL: []string{}}
	begin := store.ReadWrite
	if dryRun {
		begin = store.ReadOnly
	}
	err = begin(ctx, conn, func(tx pgx.Tx) error { return create(ctx, tx, &p) })
	if err != nil {
		return p, fmt.Errorf("create the inbox's tables in schema %s: %w", schema, err)
	}
	return p, nil
}

func create(ctx context.Context, tx pgx.Tx, p *Plan) (err error) {
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", lock); err != nil {
		return err
	}
	if p.SQL, err = missing(ctx, tx, p.Schema); err != nil || p.DryRun {
		return err
	}
	for _, statements := range p.SQL {
		if _, err := tx.Conn().PgConn().Exec(ctx, statements).ReadAll(); err != nil {
			return err
		}
	}
	return nil
}

func missing(ctx context.Context, tx pgx.Tx, schema string) ([]string, error) {
	quoted := pgx.Identifier{schema}.Sanitize()
	table := quoted + ".inbox_version"
	var there, versioned bool
	err := tx.QueryRow(ctx, "SELECT to_regnamespace($1) IS NOT NULL, to_regclass($2) IS NOT NULL", quoted, table).
		Scan(&there, &versioned)
	if err != nil {
		return nil, err
	}
	version := 0
	if versioned {
		if err := tx.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM "+table).Scan(&version); err != nil {
			return nil, err
		}
	}
	steps, err := fs.Glob(files, "*.sql") // by name
	if err != nil || version >= len(steps) {
		return []string{}, err
	}
	var all []string
	if !there {
		all = append(all, "CREATE SCHEMA "+quoted+";\n")
	}
	all = append(all, "CREATE TABLE IF NOT EXISTS "+table+" (version integer NOT NULL);\n")
	for _, name := range steps[version:] {
		text, err := render(name, quoted)
		if err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return append(all, fmt.Sprintf("DELETE FROM %s; INSERT INTO %s VALUES (%d);\n", table, table, len(steps))), nil
}

// render is a file with its one name filled in.
func render(name, schema string) (string, error) {
	text, err := files.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	const place = "{{.Schema}}"
	if rest := strings.ReplaceAll(string(text), place, ""); strings.Contains(rest, "{{") {
		return "", fmt.Errorf("%s: only %s can be filled in", name, place)
	}
	return strings.ReplaceAll(string(text), place, schema), nil
}
