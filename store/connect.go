package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/login"
)

// Connect opens one connection of its own, for questions that a Store does not ask. It works through a pooler, and
// takes the options of a pool in the URL; the caller closes it.
func Connect(ctx context.Context, c Config) (*pgx.Conn, error) {
	pool, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, fmt.Errorf("read postgres.url: %w", err)
	}
	cc := pool.ConnConfig
	cc.DefaultQueryExecMode = pgx.QueryExecModeExec
	if err := login.UsePassword(ctx, &cc.Config, c.Password); err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, cc)
	if err != nil {
		return nil, fmt.Errorf("connect to Postgres: %w", login.Explain(err, c.Password))
	}
	return conn, nil
}
