package install

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// The module emit asks a real Postgres, with pgx and with database/sql. Breaks it catches: an event that is gone and
// waited for, an id in capitals that is not found, a way of sending arguments that Postgres refuses. Seen to fail with
// the id compared as text, and with an event without a row waited for.
func TestWaitPublishedTellsWhatBecameOfEvents(t *testing.T) {
	pg := harness.Postgres(t)
	cfg := config.Default()
	cfg.Postgres.URL = pg.URL
	st, err := store.Open(t.Context(), relay.StoreConfig(cfg))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if err := st.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	const published, pending = "00000000-0000-7000-8000-00000000000a", "00000000-0000-7000-8000-00000000000b"
	pg.Exec(t, `INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type, payload, published_at) VALUES
		('`+published+`', 'order', '1', 'made', '{}', now()), ('`+pending+`', 'order', '1', 'made', '{}', NULL)`)
	ask := exec.CommandContext(t.Context(), "go", "run", ".", pg.URL, "public.outbox_events_status", published,
		strings.ToUpper(published), pending, "00000000-0000-7000-8000-00000000000c")
	ask.Dir = "../../../emit/testdata/published"
	var errs strings.Builder
	ask.Stderr = &errs
	out, err := ask.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	var want strings.Builder
	for _, way := range []string{"cache statement", "describe exec", "exec", "simple protocol", "sql"} {
		want.WriteString(strings.ReplaceAll(`way: published, no row false, over false
way: published, no row false, over false
way: waits, no row false, over true
way: , no row true, over false
`, "way", way))
	}
	if string(out) != want.String() {
		t.Errorf("got\n%s\nwant\n%s\n%s", out, want.String(), errs.String())
	}
}
