package check

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks it catches: a server that would wait for the relay with each commit, and is found in order; one that names
// others only, and is not. The slot's name is so long that the server cuts the stream's name short. Seen to fail with
// any setting found in order, and with the name not asked of the server.
func TestStreamThatWouldBeAStandbyIsFound(t *testing.T) {
	pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{})
	cfg := config.Default()
	cfg.Postgres.URL, cfg.Postgres.Slot = pg.URL, strings.Repeat("s", 60)
	conn, err := store.Connect(t.Context(), relay.StoreConfig(cfg))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	for _, row := range []struct {
		names string
		want  Level
	}{
		{"", OK},
		{"FIRST 1 (nobody)", OK},
		{"ANY 1 (nobody, *)", Fail},
		{`"CDC-relay/stream/` + strings.Repeat("S", 46) + `"`, Fail}, // 63 bytes
	} {
		pg.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = '"+row.names+"'")
		pg.Exec(t, "SELECT pg_reload_conf()")
		var report Report
		e := &postgresExam{ctx: t.Context(), cfg: cfg, conn: conn, report: &report}
		harness.Eventually(t, 20*time.Second, "the setting is read", func(context.Context) string {
			if now, err := e.setting("synchronous_standby_names"); err != nil || now != row.names {
				return "not yet"
			}
			return ""
		})
		if err := e.standbys(); err != nil {
			t.Fatal(err)
		}
		if len(report.Checks) != 1 || report.Checks[0].Level != row.want || row.want == Fail && report.Checks[0].Fix == "" {
			t.Errorf("%q: got %+v, want one line, %v, with a fix where it fails", row.names, report.Checks, row.want)
		}
	}
}
