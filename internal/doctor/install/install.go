// Package install finds out what a relay's database lacks, and creates it: the outbox if there is none, the relay's own
// tables and view, the publication and the slot. What is there is left as it is; it removes and repairs nothing.
//
// Tested by the command init, on a real Postgres with every privilege and without (cmd/cdc-relay).
package install

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
)

// What became, or would become, of a thing.
const (
	Exists  = "exists"
	Created = "created"
	Left    = "left" // to the first start
)

// Plan lists missing objects; after All or ButSlot, the created ones.
type Plan struct {
	DryRun      bool     `json:"dry_run"`
	SQL         []string `json:"sql"`         // of tables, view and publication, in order
	Tables      string   `json:"tables"`      // created or exists
	Publication string   `json:"publication"` // created or exists
	Slot        string   `json:"slot"`        // created, exists or left
	Roles       []string `json:"roles,omitempty"`
	Emit        string   `json:"emit,omitempty"`     // the function's name, if it was asked for
	Proposed    []Line   `json:"proposed,omitempty"` // for the configuration, by what the outbox's columns are called

	OwnOutbox bool `json:"-"` // the outbox is made, too: no one else publishes from it
}

// Missing finds out what is missing. It only reads.
func Missing(ctx context.Context, cfg config.Config, st *store.Store, leaveSlot bool) (Plan, error) {
	p := Plan{SQL: []string{}, Tables: Exists, Publication: Exists, Slot: Exists}
	if err := setup(cfg, st).CheckSlot(ctx); err != nil {
		return p, err // before anything is made: all that is made would be for nothing
	}
	all, err := st.EachTable(ctx)
	if err != nil {
		return p, err
	}
	statements, err := all[0].Plan(ctx)
	if err != nil {
		return p, err
	}
	table, err := all[0].Outbox(ctx)
	p.OwnOutbox = errors.Is(err, store.ErrNoOutbox)
	if err == nil {
		if err := setup(cfg, st).CheckExpressions(ctx); err != nil {
			return p, err
		}
		if p.Proposed, err = proposals(ctx, cfg, table); err != nil {
			return p, err
		}
	}
	if p.SQL = append(p.SQL, statements...); len(statements) > 0 {
		p.Tables = Created
	}
	published, release, err := look(ctx, cfg)
	if err != nil {
		return p, err
	}
	if !published {
		p.Publication = Created
		p.SQL = append(p.SQL, publicationSQL(cfg, all))
	}
	slot, err := st.Slot(ctx)
	if err != nil {
		return p, err
	}
	switch {
	case slot.Exists:
	case leaveSlot:
		p.Slot = Left
	default:
		p.Slot = Created
		p.SQL = append(p.SQL, slotSQL(cfg.Postgres.Slot, release))
	}
	return p, nil
}

// publicationSQL creates the publication of all tables.
func publicationSQL(cfg config.Config, all []*store.Store) string {
	tables := make([]store.Named, len(all))
	for i, st := range all {
		tables[i] = st.Table()
	}
	return store.PublicationSQL(cfg.Postgres.Publication, tables)
}

// slotSQL makes the slot as the relay does (replication): one that standbys keep a copy of, where the release can.
func slotSQL(name string, release int) string {
	if release >= 17 {
		return fmt.Sprintf("SELECT pg_create_logical_replication_slot('%s', 'pgoutput', failover => true)", name)
	}
	return fmt.Sprintf("SELECT pg_create_logical_replication_slot('%s', 'pgoutput')", name)
}

// look asks for the publication and the server's release, such as 17.
func look(ctx context.Context, cfg config.Config) (published bool, release int, err error) {
	conn, err := store.Connect(ctx, relay.StoreConfig(cfg))
	if err != nil {
		return false, 0, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	const sql = "SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = $1), " +
		"current_setting('server_version_num')::int / 10000"
	err = store.ReadOnly(ctx, conn, func(tx store.Tx) error {
		return tx.QueryRow(ctx, sql, cfg.Postgres.Publication).Scan(&published, &release)
	})
	if err != nil {
		return false, 0, fmt.Errorf("look for the publication: %w", err)
	}
	return published, release, nil
}

// All creates what is missing, the way that a first start would, and before that the outbox itself.
func All(ctx context.Context, cfg config.Config, st *store.Store) error {
	return setup(cfg, st).CreateAll(ctx, st.MakeView)
}

// ButSlot creates tables and publication, and leaves to the first start what decides which events are the relay's.
func ButSlot(ctx context.Context, cfg config.Config, st *store.Store) error {
	s := setup(cfg, st)
	if err := s.CreateTables(ctx); err != nil {
		return err
	}
	if err := st.MakeView(ctx); err != nil {
		return err
	}
	return s.PreparePublication(ctx)
}

// publishedAt is the column of an outbox that is created here.
const publishedAt = "published_at"

// MakeRoles makes the two least-privilege roles, or with p.DryRun adds to the plan the statements that would.
func (p *Plan) MakeRoles(ctx context.Context, cfg config.Config, st *store.Store, roles store.Roles) error {
	all, err := st.EachTable(ctx)
	if err != nil {
		return err
	}
	table, err := all[0].Outbox(ctx)
	if errors.Is(err, store.ErrNoOutbox) && p.DryRun { // it is to be made, of this shape
		schema, _ := config.SplitTable(cfg.Outbox.Table)
		table, err = store.Outbox{Schema: schema, Columns: []string{publishedAt}, MarkSet: publishedAt + " = now()"}, nil
	}
	if err != nil {
		return err
	}
	statements, err := all[0].RolesSQL(ctx, table, roles)
	if err != nil {
		return err
	}
	for _, other := range all[1:] {
		if table, err = other.Outbox(ctx); err != nil {
			return err
		}
		statements = append(statements, other.GrantsSQL(table, roles.SQL)...)
	}
	statements = once(statements)
	p.Roles = []string{roles.Stream, roles.SQL}
	if p.DryRun {
		p.SQL = append(p.SQL, statements...)
		return nil
	}
	if err := st.Apply(ctx, statements); err != nil {
		return fmt.Errorf("make the roles (it takes a superuser, or a role that may create roles with REPLICATION): %w", err)
	}
	return nil
}

// once leaves out what is there before.
func once(statements []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(statements, func(s string) bool {
		before := seen[s]
		seen[s] = true
		return before
	})
}

func setup(cfg config.Config, st *store.Store) relay.Setup {
	return relay.NewSetup(cfg, st, zerolog.Nop())
}
