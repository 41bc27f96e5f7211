package languages

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// A program of each language writes an event by the function that init makes, with a role that has no right on the
// outbox: it is there with the id that the call returned and the trace of the setting; after a failure it is not.
// Breaks it catches, in each language: a function that runs with its caller's rights, one that any role may call, one
// that takes no traceparent. Seen to fail with each: SECURITY DEFINER taken out, EXECUTE left to PUBLIC, the setting
// not looked at.
func TestEmittersInOtherLanguages(t *testing.T) {
	pg := harness.Postgres(t)
	relay := harness.NewRelay(t, harness.NewSettings(t, pg, []string{"127.0.0.1:1"}))
	if code, out, errs := relay.Run(t, "init", "--emit"); code != 0 || !strings.Contains(out, `"public"."emit" created`) {
		t.Fatalf("init --emit: exit code %d: %s%s", code, out, errs)
	}
	pg.Exec(t, "CREATE TABLE orders (id text PRIMARY KEY, cents bigint NOT NULL)")
	for _, role := range []string{"shop_app", "shop_guest"} {
		pg.Exec(t, "DO $$ BEGIN CREATE ROLE "+role+" LOGIN; EXCEPTION WHEN duplicate_object THEN END $$")
		pg.Exec(t, "GRANT INSERT ON orders TO "+role)
	}
	pg.Exec(t, "GRANT EXECUTE ON FUNCTION emit TO shop_app")
	for name, l := range spoken {
		t.Run(name, func(t *testing.T) {
			command := l.needs(t)
			last := len(command) - 1
			command[last] = strings.NewReplacer("consumer.", "emit.", "Consumer.", "Emit.").Replace(command[last])
			order := strings.Fields(name)[0]
			out, err := place(t, pg, command, "shop_app", order)
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			const row = `SELECT aggregate_type || ' ' || event_type || ' ' || (payload ->> 'cents') || ' ' ||
				(headers ->> 'traceparent') || ' ' || id FROM outbox_events WHERE aggregate_id = '%s'`
			want := "order OrderPlaced 9990 " + traceparent + " " + strings.TrimSpace(out)
			if got := pg.Query(t, fmt.Sprintf(row, order)); got != want {
				t.Errorf("the event: got %q, want %q", got, want)
			}
			if out, err := place(t, pg, command, "shop_app", order+"-fails", "FAIL=1"); err == nil {
				t.Errorf("a program that fails behind emit: got %s, want an error", out)
			}
			if out, err := place(t, pg, command, "shop_guest", order+"-guest"); err == nil {
				t.Errorf("a role that may not call emit: got %s, want an error", out)
			}
			const left = "SELECT (SELECT count(*) FROM outbox_events WHERE aggregate_id LIKE '%[1]s-%%') + " +
				"(SELECT count(*) FROM orders WHERE id LIKE '%[1]s-%%')"
			if got := pg.Query(t, fmt.Sprintf(left, order)); got != "0" {
				t.Errorf("left of the programs that failed: got %s rows, want 0", got)
			}
		})
	}
}

// place runs the program as a role, and returns what it said.
func place(t *testing.T, pg *harness.PG, command []string, role, order string, environ ...string) (string, error) {
	t.Helper()
	config, err := pgxpool.ParseConfig(pg.URL)
	if err != nil {
		t.Fatal(err)
	}
	at := config.ConnConfig
	c := exec.CommandContext(t.Context(), command[0], command[1:]...) //nolint:gosec // of this test
	c.Env = append(os.Environ(), append(environ, "ORDER="+order, "TRACEPARENT="+traceparent,
		fmt.Sprintf("DATABASE_URL=postgres://%s@%s:%d/%s", role, at.Host, at.Port, at.Database),
		fmt.Sprintf("JDBC_URL=jdbc:postgresql://%s:%d/%s?user=%s", at.Host, at.Port, at.Database, role))...)
	out, err := c.CombinedOutput()
	return string(out), err
}
