package languages

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// language is a consumer to copy, and what it needs.
type language struct {
	needs   func(*testing.T) []string // its command
	columns bool                      // takes fields apart by tabs, not JSON
}

var spoken = map[string]language{
	"Python with psycopg": {needs: func(t *testing.T) []string {
		t.Helper()
		python := "python3"
		if exec.CommandContext(t.Context(), python, "-c", "import psycopg").Run() != nil {
			python = harness.Program(t, "/usr/bin/python3", "python3-psycopg")
		}
		return []string{python, "python/consumer.py"}
	}},
	"Node with pg": {needs: func(t *testing.T) []string {
		t.Helper()
		node, npm := harness.Program(t, "node", "nodejs"), harness.Program(t, "npm", "npm")
		if _, err := os.Stat("node/node_modules/pg"); err != nil {
			install := exec.CommandContext(t.Context(), npm, "ci", "--no-audit", "--no-fund")
			install.Dir = "node"
			if out, err := install.CombinedOutput(); err != nil {
				t.Fatalf("npm ci: %v: %s", err, out)
			}
		}
		return []string{node, "node/consumer.mjs"}
	}},
	"Java with JDBC": {columns: true, needs: func(t *testing.T) []string {
		t.Helper()
		harness.Program(t, "javac", "openjdk-17-jdk-headless")
		const jar = "/usr/share/java/postgresql.jar"
		if _, err := os.Stat(jar); err != nil {
			harness.Program(t, jar, "libpostgresql-jdbc-java")
		}
		return []string{harness.Program(t, "java", "openjdk-17-jdk-headless"), "-cp", jar, "java/Consumer.java"}
	}},
}

const (
	keys   = 5
	events = 100
)

func id(n int) string { return fmt.Sprintf("019aa7e4-0000-7000-8000-%012x", n) }

// messages are events of some keys, each tenth twice, as after a crash. Number 13 is
// refused by the handler, and 27 by the table.
func messages(columns bool) []byte {
	var b bytes.Buffer
	for n := range events {
		payload := fmt.Sprintf(`{"seq": %d}`, n)
		if n == 13 {
			payload = `{"seq": 13, "fails": true}`
		}
		for range 1 + n%10/9 {
			if columns {
				fmt.Fprintf(&b, "%s\torders\t0\t%d\tk%d\t%s\n", id(n), n, n%keys, payload)
			} else {
				fmt.Fprintf(&b, `{"id": "%s", "topic": "orders", "partition": 0, "offset": %d, "key": "k%d", "payload": %s}`,
					id(n), n, n%keys, payload)
				b.WriteByte('\n')
			}
		}
	}
	return b.Bytes()
}

// The same events twice through a consumer of each language: each has its effect once, in its key's order; those that
// are refused have none, their followers wait for the decision, and they are dead letters that a replay and the next
// run bring through. Seen to fail with a claim that answers new to each, one that never answers behind, and with an
// inbox_done that leaves the followers waiting.
func TestConsumersInOtherLanguages(t *testing.T) {
	for name, l := range spoken {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := l.needs(t)
			pg, pool := newInbox(t)
			for range 2 {
				consume(t, pg, pool, command, messages(l.columns))
				judge(t, pg)
			}
			pg.Exec(t, "UPDATE inbox_dead SET value = convert_to('{\"seq\": 13}', 'UTF8')") // the cause is fixed
			if got := pg.Query(t, "SELECT inbox_replay('billing', '"+id(13)+"', 'alice', 'customer made')"); got != "true" {
				t.Fatalf("replay: got %s, want true", got)
			}
			consume(t, pg, pool, command, nil)
			if got := pg.Query(t, "SELECT count(*) || inbox_state('billing', '"+id(13)+"') FROM invoice"); got != "99done" {
				t.Errorf("after a replay: got %s, want 99done", got)
			}
		})
	}
}

// swallowed are the first lines of the function that has the effect, and one instead that goes on after its errors.
var swallowed = map[string][2]string{
	"Python with psycopg": {"def effect(connection, key, payload):", `def effect(connection, key, payload):
    try:
        strict(connection, key, payload)
    except Exception:
        pass


def strict(connection, key, payload):`},
	"Node with pg": {"async function effect(client, key, payload) {", `async function effect(client, key, payload) {
  try { await strict(client, key, payload) } catch {}
}

async function strict(client, key, payload) {`},
	"Java with JDBC": {
		"static void effect(Connection c, String key, String payload) throws Exception {",
		`static void effect(Connection c, String key, String payload) {
        try { strict(c, key, payload); } catch (Exception e) { }
    }

    static void strict(Connection c, String key, String payload) throws Exception {`,
	},
}

// A handler catches the error of a statement and goes on. Postgres rolls back, which clients do not call an error: the
// event must not count as done. Number 13 fails before any statement, so it is done, without an effect.
func TestErrorsThatHandlersSwallowAreFailures(t *testing.T) {
	for name, l := range spoken {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := l.needs(t)
			last := len(command) - 1
			text, err := os.ReadFile(command[last])
			if err != nil {
				t.Fatal(err)
			}
			changed := bytes.Replace(text, []byte(swallowed[name][0]), []byte(swallowed[name][1]), 1)
			if bytes.Equal(text, changed) {
				t.Fatalf("%s has no line %q", command[last], swallowed[name][0])
			}
			// Beside the original, for Node finds its modules there.
			command[last] = filepath.Join(filepath.Dir(command[last]), "swallows_"+filepath.Base(command[last]))
			if err := os.WriteFile(command[last], changed, 0o600); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Remove(command[last]) })
			pg, pool := newInbox(t)
			consume(t, pg, pool, command, messages(l.columns))
			got := pg.Query(t, "SELECT (SELECT count(*) FROM invoice) || ' effects, dead: ' || "+
				"coalesce(string_agg(event_id, ' '), 'none') FROM inbox_dead")
			if want := "98 effects, dead: " + id(27); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// newInbox makes a database with the inbox's tables and the one that handlers write.
func newInbox(t *testing.T) (*harness.PG, *pgxpool.Pool) {
	t.Helper()
	pg := harness.Postgres(t)
	pool, err := pgxpool.New(context.WithoutCancel(t.Context()), pg.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := inbox.Migrate(t.Context(), pool, "public"); err != nil {
		t.Fatal(err)
	}
	pg.Exec(t, "CREATE TABLE invoice (number bigint GENERATED ALWAYS AS IDENTITY, customer text, seq integer, "+
		"at timestamptz DEFAULT clock_timestamp(), CHECK (seq <> 27))")
	return pg, pool
}

func judge(t *testing.T, pg *harness.PG) {
	t.Helper()
	for _, c := range []struct{ what, sql, want string }{
		{"done, dead", "SELECT string_agg(state || ': ' || n, ', ' ORDER BY state) FROM " +
			"(SELECT state, count(*) AS n FROM inbox_event GROUP BY 1) s", "0: 98, 2: 2"},
		{"effects, different", "SELECT count(*) || ' ' || count(DISTINCT seq) FROM invoice", "98 98"},
		{"out of order", "SELECT count(*) FROM (SELECT seq, lag(seq) OVER (PARTITION BY customer ORDER BY number) " +
			"AS before FROM invoice) i WHERE seq <= before", "0"},
		{"followers that did not wait", "SELECT count(*) FROM invoice, inbox_dead WHERE at < dead_at AND " +
			"(customer, event_id) IN (('k3', '" + id(13) + "'), ('k2', '" + id(27) + "')) AND " +
			"seq > CASE customer WHEN 'k3' THEN 13 ELSE 27 END", "0"},
		{"the dead letters", "SELECT string_agg(event_id || ' ' || attempts, ', ' ORDER BY event_id) FROM inbox_dead",
			id(13) + " 5, " + id(27) + " 5"},
		{"the error", "SELECT error FROM inbox_dead WHERE event_id = '" + id(13) + "'", "no such customer"},
		{"the refused one's end", "SELECT inbox_wait('billing', '" + id(13) + "', '1 s')", "dead"},
	} {
		if got := pg.Query(t, c.sql); got != c.want {
			t.Errorf("%s: got %s, want %s", c.what, got, c.want)
		}
	}
}

func consume(t *testing.T, pg *harness.PG, pool *pgxpool.Pool, command []string, input []byte) {
	t.Helper()
	at := pool.Config().ConnConfig
	c := exec.CommandContext(t.Context(), command[0], command[1:]...) //nolint:gosec // of this test
	jdbc := fmt.Sprintf("jdbc:postgresql://%s:%d/%s?user=%s&password=%s", at.Host, at.Port, at.Database, at.User,
		at.Password)
	c.Env = append(os.Environ(), "DATABASE_URL="+pg.URL, "JDBC_URL="+jdbc)
	c.Stdin = bytes.NewReader(input)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
}
