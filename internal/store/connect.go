package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/access/login"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
)

// Tx is a transaction.
type Tx = pgx.Tx

// ReadOnly asks questions in one read-only transaction that has the settings of a Store's: names are looked up in the
// catalog alone, whatever the role's search_path, and no default of the role, the database or the server matters.
func ReadOnly(ctx context.Context, on db.Beginner, ask func(pgx.Tx) error) error {
	return db.InTx(ctx, on, db.Reading, ask)
}

// ReadWrite is ReadOnly for a transaction that writes. Its commit waits for the disk.
func ReadWrite(ctx context.Context, on db.Beginner, do func(pgx.Tx) error) error {
	return db.InTx(ctx, on, db.Migrating, do)
}

// Connect opens one connection of its own, for questions that a Store does not ask, by ReadOnly. It works through a
// pooler, and takes the options of a pool in the URL; the caller closes it.
func Connect(ctx context.Context, c Config) (*pgx.Conn, error) {
	pool, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, fmt.Errorf("read postgres.url: %w", err)
	}
	cc := pool.ConnConfig
	cc.DefaultQueryExecMode = pgx.QueryExecModeExec
	login.OnPrimary(&cc.Config, c.URL)
	if err := login.UsePassword(ctx, &cc.Config, c.Password); err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, cc)
	if err != nil {
		return nil, fmt.Errorf("connect to Postgres: %w", login.Explain(err, c.Password))
	}
	return conn, nil
}
