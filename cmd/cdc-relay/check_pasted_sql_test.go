package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// statement is SQL in what a check prints. What is set for the whole server is left alone: it is other tests', too.
var statement = regexp.MustCompile(`(?:ALTER (?:TABLE|ROLE|PUBLICATION)|CREATE (?:UNIQUE INDEX|PUBLICATION)|GRANT|` +
	`DROP (?:RULE|INDEX|VIEW)) [^;\n]*`)

// statements are those that the text holds, without those with a place to be filled in.
func statements(text string) (found []string) {
	for _, s := range statement.FindAllString(text, -1) {
		s, _, _ = strings.Cut(s, " (which ")
		if !strings.Contains(s, "<") && !strings.Contains(s, "rds_replication") { // the latter is for servers of AWS
			found = append(found, strings.TrimSpace(s))
		}
	}
	return found
}

// pasteSQL runs what check prints, as an administrator, until it prints nothing more, and returns it.
func (s services) pasteSQL(t *testing.T, environ []string, when string) (pasted []string) {
	t.Helper()
	const rounds = 4
	for n := range rounds {
		var report struct {
			OK     bool
			Checks []struct{ Name, Level, Text, Fix string }
		}
		out := cdcRelay(t, environ, "check", "--json").out
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			t.Fatalf("%s: %v\n%s", when, err, out)
		}
		var now []string
		for _, c := range report.Checks {
			if c.Level != "ok" {
				now = append(now, statements(c.Text+"\n"+c.Fix)...)
			}
		}
		if len(now) == 0 {
			if !report.OK {
				t.Errorf("%s: after %s\ngot\n%s", when, strings.Join(pasted, ";\n"), out)
			}
			return pasted
		}
		if n == rounds-1 {
			t.Errorf("%s: after %s\nit still prints %s", when, strings.Join(pasted, ";\n"), strings.Join(now, ";\n"))
		}
		for i, text := range now {
			if !slices.Contains(now[:i], text) {
				s.pg.Exec(t, text) // each by itself: some run in no transaction
			}
		}
		pasted = append(pasted, now...)
	}
	return pasted
}

// Each trouble of the table, the publication and the role that check prints a statement for, in groups of those that do
// not hide each other. Breaks caught: a statement that Postgres refuses as it is printed, or that does not fix what it
// is printed for.
func TestPastedStatementsOfCheckFixWhatItFound(t *testing.T) {
	t.Parallel()
	s := newServices(t, orderTopic)
	role := harness.Unique(t, "relay")
	environ := append(slices.Clone(s.environ), "CDC_RELAY_POSTGRES_PUBLICATION=published")
	cdcRelay(t, environ, "init").want(t, exitDone, nil, nil)
	weak := append(slices.Clone(environ), "CDC_RELAY_POSTGRES_URL="+strings.Replace(s.pg.URL, "postgres@", role+"@", 1))
	s.pg.Exec(t, fmt.Sprintf("CREATE ROLE %s LOGIN", role))
	defer s.pg.Exec(t, fmt.Sprintf("DROP OWNED BY %[1]s; DROP ROLE %[1]s", role))
	for _, group := range []struct {
		name, broken string
		environ      []string
		want         []string // parts of statements
	}{
		{"keys, an index and what is published", `ALTER TABLE outbox_events DROP CONSTRAINT outbox_events_pkey;
			ALTER TABLE outbox_events ALTER COLUMN id DROP NOT NULL; CREATE INDEX spoiling ON outbox_events (published_at);
			ALTER PUBLICATION published SET (publish = 'insert, update')`, environ,
			[]string{"ADD PRIMARY KEY", "CREATE UNIQUE INDEX CONCURRENTLY", "SET NOT NULL", "DROP INDEX CONCURRENTLY",
				"SET (publish = 'insert')"}},
		{"a filter, and no inserts", `ALTER PUBLICATION published SET (publish = 'truncate');
			ALTER PUBLICATION published SET TABLE outbox_events WHERE (aggregate_type = 'a')`, environ,
			[]string{"SET (publish = 'insert')", "SET TABLE"}},
		{"columns that are not published", `ALTER PUBLICATION published SET TABLE outbox_events (id, payload)`, environ,
			[]string{"SET TABLE"}},
		{"no publication", `DROP PUBLICATION published`, environ, []string{"CREATE PUBLICATION"}},
		{"a table that is not in the WAL, nor published", `ALTER PUBLICATION published DROP TABLE outbox_events;
			ALTER TABLE outbox_events SET UNLOGGED`, environ, []string{"SET LOGGED", "ADD TABLE"}},
		{"a column that is gone", `ALTER TABLE outbox_events RENAME COLUMN payload TO body`, environ,
			[]string{`ADD COLUMN "payload" jsonb`}},
		{"a table that inherits", `CREATE TABLE child () INHERITS (outbox_events)`, environ, []string{"NO INHERIT"}},
		{"no rights", "REVOKE ALL ON SCHEMA public FROM PUBLIC", weak,
			[]string{"GRANT SELECT", "GRANT USAGE", "REPLICATION"}},
		{"no right to write messages", `DO $$ DECLARE f regprocedure; BEGIN
			FOR f IN SELECT oid FROM pg_proc WHERE proname = 'pg_logical_emit_message' LOOP
				EXECUTE 'REVOKE EXECUTE ON FUNCTION ' || f || ' FROM PUBLIC'; END LOOP; END $$`, weak,
			[]string{"GRANT EXECUTE ON FUNCTION pg_catalog.pg_logical_emit_message("}},
		{"what hides rows", `ALTER TABLE outbox_events ENABLE ROW LEVEL SECURITY;
			ALTER TABLE cdc_relay_parked ENABLE ROW LEVEL SECURITY;
			CREATE RULE nothing AS ON UPDATE TO outbox_events DO INSTEAD NOTHING`, weak,
			[]string{"BYPASSRLS", "DISABLE ROW LEVEL SECURITY", "DROP RULE"}},
	} {
		s.pg.Exec(t, group.broken)
		pasted := strings.Join(s.pasteSQL(t, group.environ, group.name), ";\n")
		for _, part := range group.want {
			if !strings.Contains(pasted, part) {
				t.Errorf("%s: got\n%s\nwant %q among it", group.name, pasted, part)
			}
		}
	}
}
