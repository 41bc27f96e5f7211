// Command published asks emit.WaitPublished about events, by each driver and each way in which a driver sends its
// arguments, and prints a line for each answer. The module emit has no dependency, so its test with a driver is a
// program of its own.
//
// Tested in package install (published_test.go), which runs it.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/cdc-relay/cdc-relay/emit"
)

// viaSQL is database/sql.
type viaSQL struct{ db *sql.DB }

func (v viaSQL) QueryRow(ctx context.Context, query string, args ...any) *sql.Row {
	return v.db.QueryRowContext(ctx, query, args...)
}

func main() {
	ctx := context.Background()
	url, view, ids := os.Args[1], os.Args[2], os.Args[3:]
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		config, err := pgxpool.ParseConfig(url)
		must(err)
		config.ConnConfig.DefaultQueryExecMode = mode
		pool, err := pgxpool.NewWithConfig(ctx, config) // a deadline within a query closes its connection
		must(err)
		tell(ctx, mode.String(), pool, view, ids)
		pool.Close()
	}
	db, err := sql.Open("pgx", url)
	must(err)
	tell(ctx, "sql", viaSQL{db}, view, ids)
}

func tell[R emit.Row](ctx context.Context, way string, db emit.QueryRow[R], view string, ids []string) {
	for _, id := range ids {
		short, end := context.WithTimeout(ctx, time.Second)
		status, err := emit.WaitPublished(short, db, view, id)
		end()
		if errors.Is(err, context.DeadlineExceeded) { // the last status, or none if a look-up was cut off
			status = "waits"
		}
		fmt.Printf("%s: %s, no row %t, over %t\n", way, status, errors.Is(err, emit.ErrNoRow),
			errors.Is(err, context.DeadlineExceeded))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
