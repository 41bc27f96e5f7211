// Package consumers shows people what consumers that use the inbox hold back, events that are parked and dead letters,
// and has them replayed or discarded. It works on the tables that the module inbox or cdc-relay init --inbox made, and
// calls their functions: what these decide about an event it does not decide again. It reads no topic, and the relay
// does without it.
//
// Tested on a real Postgres; over HTTP by package admin, by commands in cmd/cdc-relay.
package consumers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/access/login"
	"github.com/cdc-relay/cdc-relay/internal/access/secret"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

const (
	connections    = 2
	connectTimeout = 5 * time.Second
	idleTimeout    = time.Minute
	// A consumer holds an event's row while it handles the event; a change that waits longer is refused.
	lockTimeout = "2s"
)

// Config says where the inbox is.
type Config struct {
	URL      string
	Password *secret.Source // asked at each connect; nil: the one in URL
	Schema   string
}

// Desk answers people's requests. Its methods may be called from any goroutine.
type Desk struct {
	pool   *pgxpool.Pool
	schema string
}

// Errors that callers tell apart.
var (
	ErrNoInbox    = errors.New("no inbox")
	ErrNoConsumer = errors.New("no such consumer")
	ErrNoEvent    = errors.New("this consumer has no parked event and no dead letter with this id")
	ErrBusy       = errors.New("a consumer is processing one of these events")
	ErrDenied     = errors.New("the role of inbox.url may not do this")
)

// Open prepares a pool; the first question connects.
func Open(ctx context.Context, c Config) (*Desk, error) {
	pc, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, fmt.Errorf("read inbox.url: %w", err)
	}
	pc.MaxConns, pc.MinConns, pc.MaxConnIdleTime = connections, 0, idleTimeout
	cc := pc.ConnConfig
	cc.DefaultQueryExecMode = pgx.QueryExecModeExec // through a pooler, too
	if cc.ConnectTimeout == 0 {
		cc.ConnectTimeout = connectTimeout
	}
	login.OnPrimary(&cc.Config, c.URL)
	cc.RuntimeParams["client_encoding"] = "UTF8"
	pc.BeforeConnect = func(ctx context.Context, cc *pgx.ConnConfig) error {
		return login.Renew(ctx, &cc.Config, c.URL, c.Password)
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("open a pool for inbox.url: %w", err)
	}
	return &Desk{pool: pool, schema: c.Schema}, nil
}

// Close waits for questions that are being answered.
func (d *Desk) Close() { d.pool.Close() }

// sql puts the schema in front of the inbox's names.
func (d *Desk) sql(text string) string {
	return strings.ReplaceAll(text, "inbox_", pgx.Identifier{d.schema}.Sanitize()+".inbox_")
}

// explained says what a person can do about an error of Postgres.
func (d *Desk) explained(err error) error {
	pg, is := errors.AsType[*pgconn.PgError](err)
	if !is {
		return err
	}
	switch pg.Code {
	case "42P01", "3F000": // undefined_table, invalid_schema_name
		return fmt.Errorf("%w in schema %s of the database of inbox.url (without it, postgres.url): point inbox.url and "+
			"inbox.schema at a consumer's database, or create an inbox with cdc-relay init --inbox", ErrNoInbox, d.schema)
	case "42883": // undefined_function
		return fmt.Errorf("%w of this version in schema %s: cdc-relay init --inbox %s brings it up to date", ErrNoInbox,
			d.schema, d.schema)
	case "42501": // insufficient_privilege
		return fmt.Errorf("%w: %s; give inbox.url the consumer's own role", ErrDenied, pg.Message)
	case "55P03", "40P01": // lock_not_available, deadlock_detected
		return fmt.Errorf("%w: try again when it has finished", ErrBusy)
	}
	return err
}

// row asks a question with one row as the answer, in a transaction of its own.
func (d *Desk) row(ctx context.Context, text string, args []any, into ...any) error {
	return store.ReadOnly(ctx, d.pool, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, d.sql(text), args...).Scan(into...)
	})
}

// Consumer is one by its name, with what it holds back. Names in JSON are stable.
type Consumer struct {
	Name        string     `json:"name"`
	Parked      int64      `json:"parked_events"`
	ParkedKeys  int64      `json:"parked_keys"`
	ParkedSince *time.Time `json:"parked_since"` // the oldest of them
	DeadLetters int64      `json:"dead_letters"` // open ones
	Partitions  int64      `json:"partitions"`   // that it has read
	ProgressAt  *time.Time `json:"progress_at"`  // when it last recorded an offset
}

const consumersSQL = `SELECT c.name, coalesce(p.events, 0), coalesce(p.keys, 0), p.since,
		(SELECT count(*) FROM inbox_dead l
		 WHERE l.consumer = c.consumer AND l.replayed_at IS NULL AND l.discarded_at IS NULL),
		coalesce(o.partitions, 0), o.at
		FROM inbox_consumer c
		LEFT JOIN (SELECT consumer, sum(events)::bigint AS events, count(*) AS keys, min(since) AS since
			FROM (SELECT consumer, count(*) AS events, min(parked_at) AS since FROM inbox_parked
				GROUP BY consumer, topic, partition, lane) lane GROUP BY consumer) p ON p.consumer = c.consumer
		LEFT JOIN (SELECT consumer, count(*) AS partitions, max(at) AS at FROM inbox_offset GROUP BY consumer) o
			ON o.consumer = c.consumer
		ORDER BY c.name`

// Consumers lists all that the inbox knows, by name.
func (d *Desk) Consumers(ctx context.Context) ([]Consumer, error) {
	var all []Consumer
	err := store.ReadOnly(ctx, d.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, d.sql(consumersSQL))
		if err == nil {
			all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Consumer, err error) {
				return c, row.Scan(&c.Name, &c.Parked, &c.ParkedKeys, &c.ParkedSince, &c.DeadLetters, &c.Partitions,
					&c.ProgressAt)
			})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list consumers: %w", d.explained(err))
	}
	return all, nil
}

// number is the consumer's in the tables.
func (d *Desk) number(ctx context.Context, name string) (n int16, err error) {
	err = d.row(ctx, "SELECT consumer FROM inbox_consumer WHERE name = $1", []any{name}, &n)
	if !errors.Is(err, pgx.ErrNoRows) {
		return n, d.explained(err)
	}
	all, err := d.Consumers(ctx)
	if err != nil {
		return 0, err
	}
	known := make([]string, 0, len(all))
	for _, c := range all {
		known = append(known, c.Name)
	}
	if len(known) == 0 {
		return 0, fmt.Errorf("%w: %.80q; this inbox has none yet", ErrNoConsumer, name)
	}
	return 0, fmt.Errorf("%w: %.80q; this inbox has %s", ErrNoConsumer, name, strings.Join(known, ", "))
}
