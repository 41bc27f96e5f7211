package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/test/embedded"
)

// PG is a database of its own on a Postgres server.
type PG struct {
	Server   *embedded.Postgres // shared with other tests unless it comes from NewOwnPostgres
	Database string
	URL      string // of the superuser; also good for replication
}

// A server that does not answer ends the test that asked it, with what it asked, and not all tests of the package by
// their time-out. Both are far longer than anything that ends takes, on a machine however busy.
const (
	postgresPatience = 5 * time.Minute // for a server to be made and started
	sqlPatience      = 5 * time.Minute // for a connection and one statement
)

var sharedPostgres = sync.OnceValues(func() (*embedded.Postgres, error) {
	ctx, cancel := context.WithTimeout(context.Background(), postgresPatience)
	defer cancel()
	// A directory that is kept from run to run spares the next one the making of a cluster: for tools that run tests by
	// the hundred.
	server, err := embedded.StartPostgres(ctx,
		postgresConfig(embedded.PostgresConfig{Dir: os.Getenv("CDC_RELAY_TEST_POSTGRES_DIR")}))
	if err == nil {
		AtEnd(server.Stop)
	}
	return server, err
})

func postgresConfig(c embedded.PostgresConfig) embedded.PostgresConfig {
	if c.Version == "" && c.BinDir == "" {
		c.Version = os.Getenv("CDC_RELAY_TEST_POSTGRES_VERSION")
	}
	c.Above = dataAbove()
	settings := map[string]string{"max_connections": "200", "log_min_messages": "warning"}
	for name, value := range c.Settings {
		settings[name] = value
	}
	c.Settings = settings
	return c
}

// Postgres gives the test a fresh database on the test process's server. At the test's end the database goes, with
// whatever slots, sessions and prepared transactions it still has.
func Postgres(t testing.TB) *PG {
	t.Helper()
	needsServers(t)
	server, err := sharedPostgres()
	if err != nil {
		missing(t, "Postgres", err)
	}
	return newDatabase(t, server, "")
}

// PostgresIn is Postgres with a database of the encoding.
func PostgresIn(t testing.TB, encoding string) *PG {
	t.Helper()
	needsServers(t)
	server, err := sharedPostgres()
	if err != nil {
		missing(t, "Postgres", err)
	}
	return newDatabase(t, server, " ENCODING '"+encoding+"' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
}

// NewOwnPostgres starts a server for this test alone, which it may stop, kill and freeze.
func NewOwnPostgres(t testing.TB, c embedded.PostgresConfig) *PG {
	t.Helper()
	needsServers(t)
	ctx, cancel := context.WithTimeout(t.Context(), postgresPatience)
	defer cancel()
	server, err := embedded.StartPostgres(ctx, postgresConfig(c))
	if err != nil {
		missing(t, "Postgres", err)
	}
	t.Cleanup(func() {
		kept.drop()
		if err := server.Stop(); err != nil {
			t.Errorf("stop the test's Postgres: %v", err)
		}
	})
	p := &PG{Server: server, Database: "test", URL: server.URL("test")}
	if err := execOn(t.Context(), server.URL("postgres"), "CREATE DATABASE test"); err != nil {
		t.Fatalf("create the test's database: %v", err)
	}
	return p
}

func newDatabase(t testing.TB, server *embedded.Postgres, options string) *PG {
	t.Helper()
	name := Unique(t, "test")
	p := &PG{Server: server, Database: name, URL: server.URL(name)}
	if err := execOn(t.Context(), server.URL("postgres"), "CREATE DATABASE "+name+options); err != nil {
		t.Fatalf("create the test's database: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := p.drop(ctx); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	return p
}

// drop removes the database and what would keep Postgres from dropping it.
func (p *PG) drop(ctx context.Context) error {
	kept.drop()
	if err := p.rollBackPrepared(ctx); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, p.Server.URL("postgres"))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	for {
		var slot string
		var active bool
		err := conn.QueryRow(ctx,
			`SELECT slot_name, active FROM pg_replication_slots WHERE database = $1 ORDER BY active LIMIT 1`,
			p.Database).Scan(&slot, &active)
		if errors.Is(err, pgx.ErrNoRows) {
			break
		}
		if err != nil {
			return fmt.Errorf("list slots: %w", err)
		}
		_, err = conn.Exec(ctx,
			`SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots WHERE slot_name = $1 AND active`, slot)
		if err == nil {
			_, err = conn.Exec(ctx, `SELECT pg_drop_replication_slot($1)`, slot)
		}
		if err != nil && ctx.Err() != nil {
			return fmt.Errorf("drop slot %s: %w", slot, err)
		}
	}
	if _, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+p.Database+" WITH (FORCE)"); err != nil {
		return fmt.Errorf("drop %s: %w", p.Database, err)
	}
	return nil
}

func (p *PG) rollBackPrepared(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, p.URL) // a prepared transaction can be ended only in its own database
	if err != nil {
		return fmt.Errorf("connect to %s: %w", p.Database, err)
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, `SELECT gid FROM pg_prepared_xacts WHERE database = $1`, p.Database)
	if err != nil {
		return fmt.Errorf("list prepared transactions: %w", err)
	}
	gids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("list prepared transactions: %w", err)
	}
	for _, gid := range gids {
		if _, err := conn.Exec(ctx, "ROLLBACK PREPARED "+quote(gid)); err != nil {
			return fmt.Errorf("roll back prepared transaction %s: %w", gid, err)
		}
	}
	return nil
}

func quote(literal string) string { return "'" + strings.ReplaceAll(literal, "'", "''") + "'" }

// Connect opens a session that is closed at the test's end.
func (p *PG) Connect(t testing.TB) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), sqlPatience)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.URL)
	if err != nil {
		t.Fatalf("connect to the test's database: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// Exec runs statements in a session of their own.
func (p *PG) Exec(t testing.TB, sql string) {
	t.Helper()
	if err := execOn(t.Context(), p.URL, sql); err != nil {
		t.Fatalf("%.200s: %v", sql, err)
	}
}

// Query is the first column of the first row as text, "" when it is NULL or there is no row. The query must be one that
// can stand in parentheses.
func (p *PG) Query(t testing.TB, sql string) string {
	t.Helper()
	got, err := queryOn(t.Context(), p.URL, sql)
	if err != nil {
		t.Fatalf("%.200s: %v", sql, err)
	}
	return got
}

// TryQuery is Query for a server that may not answer.
func (p *PG) TryQuery(ctx context.Context, sql string) (string, error) {
	return queryOn(ctx, p.URL, sql)
}

func execOn(ctx context.Context, url, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, sqlPatience)
	defer cancel()
	kept.drop()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
		return fmt.Errorf("execute: %w", err)
	}
	return nil
}
