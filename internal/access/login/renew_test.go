package login_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/access/login"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// certified is a server that takes role guarded by its client certificate only.
func certified(t *testing.T, authority *harness.Authority) (pg *harness.PG, url, certFile, keyFile string) {
	t.Helper()
	pg = harness.NewOwnPostgres(t, embedded.PostgresConfig{})
	data, mine := filepath.Join(pg.Server.Dir(), "data"), t.TempDir()
	of := func(path string) (uid, gid int) {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		owner := info.Sys().(*syscall.Stat_t)
		return int(owner.Uid), int(owner.Gid)
	}
	server := authority.Issue(t, "server", time.Now().Add(time.Hour), "127.0.0.1")
	for name, from := range map[string]string{
		"ca.pem": authority.File, "own.pem": server.CertFile, "own.key": server.KeyFile,
	} {
		path := filepath.Join(data, name)
		harness.CopyFile(t, path, from)
		if uid, gid := of(data); os.Chown(path, uid, gid) != nil {
			t.Fatal("cannot give the server its files")
		}
	}
	rules := filepath.Join(data, "pg_hba.conf")
	old, err := os.ReadFile(rules)
	if err == nil {
		err = os.WriteFile(rules, append([]byte("hostssl all,replication guarded 127.0.0.1/32 cert\n"), old...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, setting := range []string{"ssl_ca_file = 'ca.pem'", "ssl_cert_file = 'own.pem'", "ssl_key_file = 'own.key'",
		"ssl = on"} {
		pg.Exec(t, "ALTER SYSTEM SET "+setting)
	}
	pg.Exec(t, "SELECT pg_reload_conf()")
	pg.Exec(t, "CREATE ROLE guarded LOGIN REPLICATION")
	certFile, keyFile = filepath.Join(mine, "relay.pem"), filepath.Join(mine, "relay.key")
	url = strings.Replace(strings.Replace(pg.URL, "postgres@", "guarded@", 1), "sslmode=disable",
		"sslmode=verify-full&sslrootcert="+authority.File+"&sslcert="+certFile+"&sslkey="+keyFile, 1)
	return pg, url, certFile, keyFile
}

// The client certificate of both connections expires, is of someone else, is gone and is renewed, at a start and while
// a pool is open. Breaks it catches: a pool that goes on with the files of its start, and a refusal that does not say
// which file to renew, or asks to look at the network.
func TestClientCertificatesAreReadAgainAndNamed(t *testing.T) {
	authority, stranger := harness.NewAuthority(t, "ours"), harness.NewAuthority(t, "theirs")
	pg, url, certFile, keyFile := certified(t, authority)
	show := func(c harness.Certificate) {
		harness.CopyFile(t, certFile, c.CertFile)
		harness.CopyFile(t, keyFile, c.KeyFile)
	}
	good := func() { show(authority.Issue(t, "guarded", time.Now().Add(time.Hour))) }
	good()
	harness.Eventually(t, time.Minute, "the server speaks TLS", func(context.Context) string {
		if err := connect(t, url, true); err != nil {
			return err.Error()
		}
		return ""
	})
	pool, err := store.Open(t.Context(), store.Config{URL: url, Slot: "s", Table: "public.outbox_events"})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	ask := func() (err error) {
		for range 5 { // its idle connections were ended
			if _, err = pool.Clock(t.Context()); err == nil || login.Of(err) != nil {
				break
			}
		}
		return err
	}
	for _, c := range []struct {
		name      string
		show      func()
		remedy    []string // of the refusal; nil: it is let in
		permanent bool
	}{
		{"at the start", good, nil, false},
		{"expired", func() { show(authority.Issue(t, "guarded", time.Now().Add(-time.Hour))) },
			[]string{"sslcert in postgres.", `"CN=guarded"`, "expired at 20"}, true},
		{"renewed", good, nil, false},
		{"of another authority", func() { show(stranger.Issue(t, "guarded", time.Now().Add(time.Hour))) },
			[]string{"sslcert and sslkey in postgres.", "ssl_ca_file"}, true},
		{"for another role", func() { show(authority.Issue(t, "other", time.Now().Add(time.Hour))) },
			[]string{"sslcert and sslkey in postgres.", "certificate for role guarded", "common name"}, true},
		{"gone", func() { _ = os.Remove(certFile) }, []string{"check sslcert"}, false},
		{"there again", good, nil, false},
	} {
		c.show()
		pg.Exec(t, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'guarded'")
		for what, err := range map[string]error{"pool": ask(), "stream": connect(t, url, true)} {
			if c.remedy == nil {
				if err != nil {
					t.Errorf("%s, %s: %v", c.name, what, err)
				}
				continue
			}
			refused := login.Of(err)
			if refused == nil {
				t.Errorf("%s, %s: got %v, want a refusal", c.name, what, err)
				continue
			}
			t.Logf("%s, %s: %s. To do: %s", c.name, what, refused.Reason, refused.Remedy)
			for _, part := range c.remedy {
				if !strings.Contains(refused.Remedy, part) || refused.Permanent != c.permanent {
					t.Errorf("%s, %s: got %+v, want %q, permanent %t", c.name, what, refused, part, c.permanent)
				}
			}
		}
	}
}

// A user without a name, as in a container whose user id is in no passwd file, and a URL without a role.
func TestRoleThatNothingNamesIsSaid(t *testing.T) {
	t.Setenv("PGUSER", "")
	pg := harness.Postgres(t)
	conf, err := pgconn.ParseConfig(strings.Replace(pg.URL, "postgres@", "", 1))
	if err != nil {
		t.Fatal(err)
	}
	conf.User = "" // what the driver leaves where the system knows no name
	_, err = pgconn.ConnectConfig(t.Context(), conf)
	refused := login.Of(login.Explain(err, nil))
	if refused == nil || !refused.Permanent || !strings.Contains(refused.Remedy, "name the role in postgres.url") {
		t.Errorf("got %+v, want a permanent one that asks for the role", refused)
	}
}
