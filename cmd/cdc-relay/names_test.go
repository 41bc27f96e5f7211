package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks it catches: a name that Postgres takes and that a command refuses, quotes wrongly or cuts; a statement that is
// printed and does not work when it is pasted. Seen to fail with names of letters, digits, _ and $ only, with tables
// split at the first dot, and with order_by split at each comma.
func TestAnyNameThatPostgresTakesIsTakenByEveryCommand(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", 31) + "x" // 63 bytes
	for _, c := range []struct{ name, schema, table, written, id, key, relay, publication string }{
		{"hyphens", "tenant-42", "outbox-events", "tenant-42.outbox-events", "event-id", "key-of", "relay-42", "pub-42"},
		{"quotes", `a."b`, `c'd \ "e"`, `"a.""b"."c'd \ ""e"""`, `I "d', x`, `"k" {y}`, `r"."s`, `p"', q`},
		{"long", long, long, long + "." + long, long, "ключ", "схема", long},
		{"a word of SQL", "Select", "User", "Select.User", "Order", "Group", "Table", "Where"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newServices(t, orderTopic)
			q := func(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
			table := q(c.schema) + "." + q(c.table)
			s.pg.Exec(t, `CREATE SCHEMA `+q(c.schema)+`; CREATE TABLE `+table+` (`+q(c.id)+` uuid PRIMARY KEY DEFAULT
 gen_random_uuid(), aggregate_type text, `+q(c.key)+` text, event_type text, payload jsonb, created_at timestamptz
 DEFAULT clock_timestamp(), published_at timestamptz)`)
			file := filepath.Join(t.TempDir(), "relay.yaml")
			yaml := func(name string) string { return `'` + strings.ReplaceAll(name, `'`, `''`) + `'` }
			if err := os.WriteFile(file, []byte(`
postgres: {schema: `+yaml(q(c.relay))+`, publication: `+yaml(q(c.publication))+`}
outbox:
  table: `+yaml(c.written)+`
  columns: {id: `+yaml(q(c.id))+`, aggregate_id: `+yaml("{"+q(c.key)+"}")+`}
  order_by: `+yaml("created_at, "+q(c.id)+" desc")+`
`), 0o600); err != nil {
				t.Fatal(err)
			}
			does := func(args ...string) outcome {
				t.Helper()
				o := cdcRelay(t, s.environ, append(args, "--config", file)...)
				o.want(t, exitDone, nil, nil)
				return o
			}
			tables, _, _ := strings.Cut(does("init", "--dry-run").out, "SELECT pg_create_logical_replication_slot")
			s.pg.Exec(t, tables)
			does("init", "--dry-run").want(t, exitDone, []string{"!CREATE"}, nil)
			does("init")
			does("check").want(t, exitDone, []string{"!FAIL", "ok    publication "}, nil)
			s.pg.Exec(t, `ALTER PUBLICATION `+q(c.publication)+` DROP TABLE `+table)
			failed := cdcRelay(t, s.environ, "check", "--config", file)
			_, fix, _ := strings.Cut(failed.out, "is not in it; fix: ")
			fix, _, _ = strings.Cut(fix, "; (")
			s.pg.Exec(t, fix)
			does("check").want(t, exitDone, []string{"!FAIL"}, nil)
			s.pg.Exec(t, `INSERT INTO `+table+` (aggregate_type, `+q(c.key)+`, event_type, payload) VALUES ('order', 'a', 'x',
 '{}')`)
			r := startRelay(t, s.environ, "--config", file)
			s.pg.Exec(t, `INSERT INTO `+table+` (aggregate_type, `+q(c.key)+`, event_type, payload) VALUES ('order', 'a', 'x',
 '{}')`)
			harness.Eventually(t, time.Minute, "both rows are marked", func(context.Context) string {
				return s.pg.Query(t, `SELECT CASE WHEN count(*) < 2 THEN 'not yet' END FROM `+table+` WHERE published_at IS NOT
 NULL`)
			})
			if code := r.stop(t, syscall.SIGTERM); code != exitDone {
				t.Errorf("run: got exit code %d; log:\n%s", code, r.log)
			}
			does("find", s.pg.Query(t, "SELECT min("+q(c.id)+"::text) FROM "+table))
			does("find", "--aggregate", "order/a")
			does("verify").want(t, exitDone, []string{"2"}, nil)
			does("dlq", "list")
			does("config", "init", "--write", "-").want(t, exitDone, []string{"publishes the table's inserts"}, nil)
		})
	}
}
