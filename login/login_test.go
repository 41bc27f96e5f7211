package login_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/embedded"
	"github.com/cdc-relay/cdc-relay/login"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// connect tries both kinds of connection that a relay makes.
func connect(t *testing.T, url string, streams bool) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if streams {
		_, err := replication.Identify(ctx, replication.Config{URL: url, Slot: "s", Publication: "p",
			ApplicationName: "test", StatusInterval: time.Second, WALSenderTimeout: time.Minute})
		return err
	}
	conn, err := store.Connect(ctx, store.Config{URL: url})
	if err == nil {
		err = conn.Close(ctx)
	}
	return err
}

// A server lets a role in only when everything is right: here one thing after another is wrong. Breaks it catches:
// a remedy that does not cure, or is one for another cause; a driver's text about TLS in front of the cause; a
// cause that waits for a person and is called passing, or the reverse. Seen to fail with each case of the table
// taken out of the code, and with the driver's attempts not sorted.
func TestStatementThatIsNamedLetsTheRoleIn(t *testing.T) {
	pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{})
	rules := filepath.Join(pg.Server.Dir(), "data", "pg_hba.conf")
	old, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	const first = "host all secret 127.0.0.1/32 scram-sha-256\nhost all,replication barred 127.0.0.1/32 reject\n"
	if err := os.WriteFile(rules, append([]byte(first), old...), 0o600); err != nil {
		t.Fatal(err)
	}
	pg.Exec(t, `SELECT pg_reload_conf(); CREATE ROLE plain LOGIN; CREATE ROLE mute;
		CREATE ROLE secret LOGIN PASSWORD 'right';
		CREATE ROLE barred LOGIN REPLICATION; CREATE ROLE far LOGIN; REVOKE CONNECT ON DATABASE test FROM PUBLIC;
		GRANT CONNECT ON DATABASE test TO plain, mute, secret, barred`)
	as := func(role string) string { return strings.Replace(pg.URL, "postgres@", role+"@", 1) }
	for _, c := range []struct {
		name, url, reason, remedy string
		streams, statement        bool // the remedy begins with a statement that cures it
	}{
		{"no replication", as("plain"), "role plain, database test", `ALTER ROLE "plain" REPLICATION;`, true, true},
		{"no login", as("mute"), "not permitted to log in", `ALTER ROLE "mute" LOGIN;`, false, true},
		{"no role", as("nobody"), `"nobody" does not exist`, `CREATE ROLE "nobody" LOGIN;`, false, true},
		{"no connect", as("far"), "permission denied for database",
			`GRANT CONNECT ON DATABASE "test" TO "far";`, false, true},
		{"no database", strings.Replace(pg.URL, "/test", "/absent", 1), `"absent" does not exist`,
			`CREATE DATABASE "absent";`, false, true},
		{"wrong password", strings.Replace(pg.URL, "postgres@", "secret:wrong@", 1), "password authentication failed",
			`set the role's password in postgres.url`, false, false},
		{"barred", as("barred"), "pg_hba.conf rejects", "a line of pg_hba.conf such as: host test barred", true, false},
		{"TLS is a must", strings.Replace(pg.URL, "sslmode=disable", "sslmode=require", 1), "server refused TLS",
			"sslmode=disable", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, mode := range []string{"disable", "prefer"} { // a URL with another mode stays as it is
				url := strings.Replace(c.url, "sslmode=disable", "sslmode="+mode, 1)
				refused := login.Of(connect(t, url, c.streams))
				if refused == nil {
					t.Fatal("it was let in")
				}
				t.Logf("%s. To do: %s", refused.Reason, refused.Remedy)
				if !refused.Permanent || !strings.Contains(refused.Reason, c.reason) ||
					!strings.Contains(refused.Remedy, c.remedy) {
					t.Errorf("got %+v, want a permanent one with %q and %q", refused, c.reason, c.remedy)
				}
				if said := refused.Error(); strings.Contains(said, "\n") || strings.Contains(said, "wrong") ||
					c.name != "TLS is a must" && strings.Contains(said, "TLS") {
					t.Errorf("it says %q: want one line, without a word of TLS or a password", said)
				}
			}
			if !c.statement {
				return
			}
			statement, _, _ := strings.Cut(login.Of(connect(t, c.url, c.streams)).Remedy, ";")
			pg.Exec(t, statement)
			if c.name == "no role" { // nobody has named the next thing yet
				pg.Exec(t, `GRANT CONNECT ON DATABASE test TO nobody`)
			}
			if err := connect(t, c.url, c.streams); err != nil {
				t.Errorf("after %s: %v", statement, err)
			}
		})
	}
}

// Breaks it catches: a server that is down, or not to be found, taken for one that will never let us in; one host
// of several that refuses taken for all of them. Seen to fail with one permanent refusal taken for that of all
// hosts.
func TestServerThatIsDownIsNoPermanentRefusal(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nowhere := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	pg := harness.Postgres(t)
	there := pg.URL[strings.Index(pg.URL, "@")+1 : strings.LastIndex(pg.URL, "/")]
	for _, c := range []struct{ name, url, remedy string }{
		{"nothing listens", "postgres://a@" + nowhere + "/d", "nothing listens there"},
		{"no such host", "postgres://a@nowhere.invalid:5432/d", "resolve"},
		{"one of two", "postgres://nobody@" + there + "," + nowhere + "/d?target_session_attrs=read-write",
			"nothing listens there"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := connect(t, c.url, false)
			refused := login.Of(err)
			if refused == nil || refused.Permanent || !strings.Contains(refused.Remedy, c.remedy) ||
				!store.IsTransient(err) {
				t.Errorf("got %+v (%v), want a passing one with %q", refused, err, c.remedy)
			}
		})
	}
}
