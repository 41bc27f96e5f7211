package install

import (
	"os"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// Break it catches: an emit that init makes and one that the Go module makes, which differ. Seen to fail with the file
// changed on one side.
func TestEmitIsThatOfTheModule(t *testing.T) {
	theirs, err := os.ReadFile("../../../emit/emit_0001.sql")
	if err != nil || string(theirs) != emitFunction {
		t.Errorf("internal/doctor/install/emit_0001.sql is not the module's (%v): copy emit/emit_0001.sql to install", err)
	}
}

// Breaks it catches: a function that fails at the first event, in the application's transaction. Seen to fail with the
// columns not looked at, with the types not looked at, and with names that are not quoted.
func TestEmitIsRefusedWhereTheOutboxCannotTakeIt(t *testing.T) {
	all := []string{"id", "kind", "key", "event_type", "payload", "Headers"}
	for name, c := range map[string]struct {
		change func(*config.Columns, *store.Outbox)
		want   string
	}{
		"it can":         {func(*config.Columns, *store.Outbox) {}, ""},
		"no headers":     {func(c *config.Columns, _ *store.Outbox) { c.Headers = "" }, `has "" for one`},
		"no such column": {func(_ *config.Columns, o *store.Outbox) { o.Columns = all[1:] }, `has "id" for one`},
		"numbers":        {func(_ *config.Columns, o *store.Outbox) { o.IDType = "bigint" }, "an id of bigint"},
		"bytes":          {func(_ *config.Columns, o *store.Outbox) { o.PayloadType = "bytea" }, "a payload of bytea"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, table := config.Config{}, store.Outbox{Columns: all, IDType: "uuid", PayloadType: "jsonb"}
			cfg.Outbox.Table = "shop.Events"
			cfg.Outbox.Columns = config.Columns{ID: "id", AggregateType: "kind", AggregateID: "key",
				EventType: "event_type", Payload: "payload", Headers: "Headers"}
			c.change(&cfg.Outbox.Columns, &table)
			err := takesEmit(cfg, table)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
			const insert = `INSERT INTO "shop"."Events" ("id", "kind", "key", "event_type", "payload", "Headers")`
			if sql := emitSQL(cfg); c.want == "" && (len(sql) != 2 || !strings.Contains(sql[0], insert)) {
				t.Errorf("got %q, want %s in it", sql, insert)
			}
		})
	}
}

// Breaks it catches: a function whose first event fails for a column's type, and a table refused that takes it. Seen to
// fail with Postgres not asked, and with an id asked for that is no uuid.
func TestEmitIsRefusedWhereAColumnsTypeCannotTakeIt(t *testing.T) {
	for change, want := range map[string]string{
		"ALTER COLUMN aggregate_id TYPE varchar(80)":                "",
		"ALTER COLUMN event_type TYPE word":                         "",
		"ALTER COLUMN id TYPE text, ALTER COLUMN headers TYPE text": "",
		"ALTER COLUMN aggregate_id TYPE uuid USING NULL":            `"aggregate_id" is of type uuid`,
		"ALTER COLUMN aggregate_id TYPE bigint USING NULL":          `"aggregate_id" is of type bigint`,
		"ALTER COLUMN event_type TYPE kind USING NULL":              `"event_type" is of type public.kind`,
		"DROP COLUMN aggregate_type, ADD aggregate_type kind":       `"aggregate_type" is of type public.kind`,
	} {
		t.Run(change, func(t *testing.T) {
			pg := harness.Postgres(t)
			pg.Exec(t, `CREATE TYPE kind AS ENUM ('made'); CREATE DOMAIN word AS text NOT NULL CHECK (VALUE <> '');
				CREATE TABLE outbox_events (id uuid PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text,
				payload jsonb, headers jsonb, created_at timestamptz); ALTER TABLE outbox_events `+change)
			cfg := config.Default()
			cfg.Postgres.URL, cfg.Outbox.Columns.Headers = pg.URL, "headers"
			st, err := store.Open(t.Context(), relay.StoreConfig(cfg))
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			err = new(Plan).MakeEmit(t.Context(), cfg, st)
			if want != "" {
				if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "without emit") {
					t.Errorf("got %v, want %q in it", err, want)
				}
				return
			}
			if err != nil {
				t.Fatalf("got %v, want it made", err)
			}
			pg.Exec(t, `SELECT emit('order', '42', 'made', '{"n": 1}')`)
		})
	}
}
