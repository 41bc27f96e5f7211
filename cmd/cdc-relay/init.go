package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/store"
)

type initCommand struct {
	DryRun  bool          `help:"Print the SQL and create nothing." env:"CDC_RELAY_INIT_DRY_RUN"`
	NoSlot  bool          `help:"Leave the slot to the first start: a slot keeps every event from when it is made, those too that another worker still publishes." env:"CDC_RELAY_INIT_NO_SLOT"`
	Roles   bool          `help:"Also make the least-privilege roles, or give them what a newer version needs." env:"CDC_RELAY_INIT_ROLES"`
	Stream  string        `name:"role-stream" help:"Name of the role that streams, for postgres.replication_url." default:"relay_repl" env:"CDC_RELAY_INIT_ROLE_STREAM"`
	SQL     string        `name:"role-sql" help:"Name of the role that writes the relay's tables, for postgres.url." default:"relay_rw" env:"CDC_RELAY_INIT_ROLE_SQL"`
	Timeout time.Duration `help:"How long all of it may take; the slot waits for every running transaction to end." default:"2m" env:"CDC_RELAY_INIT_TIMEOUT"`
}

func (initCommand) Help() string {
	return "Creates the outbox table if there is none, the relay's own tables and view, the publication and, last, the replication slot. Run it again at any time: what is there is left as it is, and a newer version adds what it needs. With --no-slot everything but the slot is made, for a table that another worker still publishes from: the first start of run makes it. With --roles it also makes two roles with just the grants that run needs; they have no passwords until you set them.\n\nExamples:\n\n  cdc-relay init --dry-run --postgres-url postgres://postgres@db/app\n\n  cdc-relay init --config relay.yaml\n\n  cdc-relay init --config relay.yaml --no-slot\n\n  cdc-relay init --config relay.yaml --postgres-url postgres://postgres@db/app --roles"
}

// initResult is what init did, or would do.
type initResult struct {
	DryRun      bool     `json:"dry_run"`
	SQL         []string `json:"sql"`         // of tables, view and publication, in order
	Tables      string   `json:"tables"`      // created or exists
	Publication string   `json:"publication"` // created or exists
	Slot        string   `json:"slot"`        // created, exists or left
	Roles       []string `json:"roles,omitempty"`

	ownOutbox bool // init makes the outbox: nobody else publishes from it
}

// Run creates what is missing, in the order in which one needs the other.
func (c initCommand) Run(a *app) error {
	a.positive("--timeout", c.Timeout)
	cfg, err := a.load(needsPostgres)
	if err != nil {
		return err
	}
	ctx, stop := stoppable(context.Background(), func() {})
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	st, err := store.Open(ctx, relay.StoreConfig(cfg))
	if err != nil {
		return err
	}
	defer st.Close()
	result, err := c.plan(ctx, cfg, st)
	if err != nil {
		return err
	}
	result.DryRun = c.DryRun
	if !c.DryRun {
		create := createAll
		if result.Slot == left {
			create = createAllButSlot
		}
		if err := create(ctx, cfg, st); err != nil {
			return err
		}
	}
	if c.Roles {
		if err := c.makeRoles(ctx, cfg, st, &result); err != nil {
			return err
		}
	}
	if a.cli.JSON {
		return a.printJSON(result)
	}
	a.printInit(result, cfg)
	return nil
}

// makeRoles makes the roles, or adds to the plan what would be done.
func (c initCommand) makeRoles(ctx context.Context, cfg config.Config, st *store.Store, result *initResult) error {
	table, err := st.Outbox(ctx)
	if errors.Is(err, store.ErrNoOutbox) && c.DryRun { // init makes it, of this shape
		schema, _ := config.SplitTable(cfg.Outbox.Table)
		table, err = store.Outbox{Schema: schema, Columns: []string{publishedAt}, MarkSet: publishedAt + " = now()"}, nil
	}
	if err != nil {
		return err
	}
	statements, err := st.RolesSQL(ctx, table, store.Roles{Stream: c.Stream, SQL: c.SQL})
	if err != nil {
		return err
	}
	result.Roles = []string{c.Stream, c.SQL}
	if c.DryRun {
		result.SQL = append(result.SQL, statements...)
		return nil
	}
	if err := st.Apply(ctx, statements); err != nil {
		return fmt.Errorf("make the roles (it takes a superuser, or a role that may create roles with REPLICATION): %w", err)
	}
	return nil
}

const (
	exists  = "exists"
	created = "created"
	left    = "left" // to the first start
)

// plan finds out what is missing. It only reads.
func (c initCommand) plan(ctx context.Context, cfg config.Config, st *store.Store) (initResult, error) {
	result := initResult{SQL: []string{}, Tables: exists, Publication: exists, Slot: exists}
	statements, err := st.Plan(ctx)
	if err != nil {
		return result, err
	}
	_, err = st.Outbox(ctx)
	result.ownOutbox = errors.Is(err, store.ErrNoOutbox)
	if err == nil {
		if err := setup(cfg, st).CheckExpressions(ctx); err != nil {
			return result, err
		}
	}
	if result.SQL = append(result.SQL, statements...); len(statements) > 0 {
		result.Tables = created
	}
	published, err := publicationExists(ctx, cfg)
	if err != nil {
		return result, err
	}
	if !published {
		result.Publication = created
		result.SQL = append(result.SQL, st.PublicationSQL(cfg.Postgres.Publication))
	}
	slot, err := st.Slot(ctx)
	if err != nil {
		return result, err
	}
	switch {
	case slot.Exists:
	case c.NoSlot:
		result.Slot = left
	default:
		result.Slot = created
		result.SQL = append(result.SQL, fmt.Sprintf("SELECT pg_create_logical_replication_slot('%s', 'pgoutput')", cfg.Postgres.Slot))
	}
	return result, nil
}

func publicationExists(ctx context.Context, cfg config.Config) (found bool, err error) {
	conn, err := connect(ctx, cfg)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = $1)", cfg.Postgres.Publication).Scan(&found)
	if err != nil {
		return false, fmt.Errorf("look for the publication: %w", err)
	}
	return found, nil
}

// createAll creates what is missing, the way that a first start would, and before that the outbox itself.
func createAll(ctx context.Context, cfg config.Config, st *store.Store) error {
	s := setup(cfg, st)
	if err := s.CanDecode(ctx); err != nil {
		return err
	}
	if err := s.CreateTables(ctx); err != nil {
		return err
	}
	_, err := s.Prepare(ctx)
	if _, streaming := errors.AsType[*replication.SlotBusyError](err); streaming {
		return nil // a relay runs: all that it needs is there
	}
	return err
}

// createAllButSlot creates tables and publication, and leaves to the first start what decides which events are the relay's.
func createAllButSlot(ctx context.Context, cfg config.Config, st *store.Store) error {
	s := setup(cfg, st)
	if err := s.CreateTables(ctx); err != nil {
		return err
	}
	return s.PreparePublication(ctx)
}

func setup(cfg config.Config, st *store.Store) relay.Setup {
	return relay.NewSetup(cfg, st, zerolog.Nop())
}

func (a *app) printInit(r initResult, cfg config.Config) {
	if r.DryRun {
		for _, statement := range r.SQL {
			fmt.Fprintln(a.out, strings.TrimRight(strings.TrimSpace(statement), ";")+";")
		}
		if len(r.SQL) == 0 {
			fmt.Fprintln(a.out, "-- nothing is missing")
		}
		return
	}
	fmt.Fprintf(a.out, "tables       %s\npublication  %s %s\nslot         %s %s\n", r.Tables, cfg.Postgres.Publication, r.Publication, cfg.Postgres.Slot, r.Slot)
	if len(r.Roles) > 0 {
		fmt.Fprintf(a.out, "roles        %s for postgres.replication_url, %s for postgres.url; set their passwords: ALTER ROLE … PASSWORD\n", r.Roles[0], r.Roles[1])
	}
	switch {
	case r.ownOutbox:
	case r.Slot == created:
		fmt.Fprintln(a.out, "The slot keeps every event from now on: what another worker still publishes from this table will come twice (--no-slot leaves it to the first start).")
	case r.Slot == left:
		fmt.Fprintln(a.out, "The slot is left to the first start of run: stop the worker that publishes from this table before that.")
	}
	fmt.Fprintln(a.out, "Next: cdc-relay check, then cdc-relay run.")
}
