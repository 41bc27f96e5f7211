package install

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
)

// emitFunction is the module emit's: a module embeds only its own files.
//
//go:embed emit_0001.sql
var emitFunction string

// MakeEmit creates the function emit beside the outbox, or replaces it by this version's; with p.DryRun it adds to the
// plan the statements that would. The role that runs it owns the function, and applications need EXECUTE on it. An
// outbox that cannot take what emit writes is an error.
func (p *Plan) MakeEmit(ctx context.Context, cfg config.Config, st *store.Store) error {
	if cfg.Outbox.Tables != "" {
		return errors.New("--emit creates the function beside one outbox, and outbox.tables chooses several: create it " +
			"with the tenants' own migrations, from docs/emit.md")
	}
	table, err := st.Outbox(ctx)
	switch {
	case errors.Is(err, store.ErrNoOutbox) && p.DryRun: // it is to be made, with the columns that emit needs
	case err != nil:
		return err
	default:
		if err := takesEmit(cfg, table); err != nil {
			return err
		}
		if err := typesTakeEmit(ctx, cfg); err != nil {
			return err
		}
	}
	schema, _ := config.SplitTable(cfg.Outbox.Table)
	p.Emit = sqlName(schema, "emit")
	statements := emitSQL(cfg)
	if p.DryRun {
		p.SQL = append(p.SQL, statements...)
		return nil
	}
	if err := st.Apply(ctx, statements); err != nil {
		return fmt.Errorf("create the function emit: %w", err)
	}
	return nil
}

func emitColumns(c config.Columns) []string {
	return []string{c.ID, c.AggregateType, c.AggregateID, c.EventType, c.Payload, c.Headers}
}

// takesEmit returns why the table cannot take what emit writes.
func takesEmit(cfg config.Config, table store.Outbox) error {
	for _, column := range emitColumns(cfg.Outbox.Columns) {
		if !slices.Contains(table.Columns, column) {
			return fmt.Errorf("the function emit writes id, aggregate_type, aggregate_id, event_type, payload and headers, "+
				"each into a column of its own, and outbox.columns has %q for one, which is no column of %s: add it, or insert "+
				"into the table without emit", column, cfg.Outbox.Table)
		}
	}
	if table.IDType == "bigint" || table.PayloadType == "bytea" {
		return fmt.Errorf("the function emit writes a uuid and JSON, and %s has an id of %s and a payload of %s: insert "+
			"into the table without emit", cfg.Outbox.Table, table.IDType, table.PayloadType)
	}
	return nil
}

// typesTakeEmit asks Postgres whether it would assign what emit writes to the columns. EXPLAIN resolves the types and
// inserts nothing, so no trigger and no constraint has a say. Rights are looked at after the types: whether they are
// there is not asked here.
func typesTakeEmit(ctx context.Context, cfg config.Config) error {
	conn, err := store.Connect(ctx, relay.StoreConfig(cfg))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	schema, name := config.SplitTable(cfg.Outbox.Table)
	err = store.ReadOnly(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "EXPLAIN INSERT INTO "+sqlName(schema, name)+" ("+emitColumnList(cfg)+
			") SELECT NULL::uuid, NULL::text, NULL::text, NULL::text, NULL::jsonb, NULL::jsonb")
		return err
	})
	var refused *pgconn.PgError
	const mismatch, denied = "42804", "42501"
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &refused):
	case refused.Code == denied:
		return nil
	case refused.Code == mismatch:
		return fmt.Errorf("the function emit writes a uuid, text and JSON, and %s does not take them: %s: change the "+
			"column, or insert into the table without emit", cfg.Outbox.Table, refused.Message)
	}
	return fmt.Errorf("ask whether %s takes what emit writes: %w", cfg.Outbox.Table, err)
}

func emitColumnList(cfg config.Config) string {
	var columns []string
	for _, column := range emitColumns(cfg.Outbox.Columns) {
		columns = append(columns, sqlName(column))
	}
	return strings.Join(columns, ", ")
}

// emitSQL are the statements, in order.
func emitSQL(cfg config.Config) []string {
	schema, name := config.SplitTable(cfg.Outbox.Table)
	text := strings.NewReplacer("{{.Schema}}", sqlName(schema), "{{.Outbox}}",
		sqlName(schema, name), "{{.Columns}}", emitColumnList(cfg)).Replace(emitFunction)
	create, revoke, _ := strings.Cut(text, "\nREVOKE ")
	return []string{create, "REVOKE " + revoke}
}

// sqlName is a name as SQL writes it.
func sqlName(parts ...string) string {
	for i, part := range parts {
		parts[i] = `"` + strings.ReplaceAll(part, `"`, `""`) + `"`
	}
	return strings.Join(parts, ".")
}
