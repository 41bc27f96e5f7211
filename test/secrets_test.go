package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// counter counts lines that contain a text.
type counter struct {
	mu    sync.Mutex
	text  string
	lines int // guarded by mu
}

func (c *counter) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines += strings.Count(string(p), c.text)
	return len(p), nil
}

func (c *counter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lines
}

// writeSecret writes a file that no one else may read.
func writeSecret(t *testing.T, path, secret string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// rotated is a role that needs its password, "first", and may no more than a cloud's: it owns what it makes, streams,
// and is no superuser.
func rotated(t *testing.T, pg *harness.PG) (url string) {
	t.Helper()
	hba := filepath.Join(pg.Server.Dir(), "data", "pg_hba.conf")
	rules, err := os.ReadFile(hba)
	if err == nil {
		err = os.WriteFile(hba, append([]byte("host all rotated 127.0.0.1/32 scram-sha-256\n"), rules...), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	pg.Exec(t, "CREATE ROLE rotated LOGIN REPLICATION PASSWORD 'first'")
	pg.Exec(t, "GRANT CREATE ON DATABASE "+pg.Database+" TO rotated")
	pg.Exec(t, "GRANT USAGE, CREATE ON SCHEMA public TO rotated")
	pg.Exec(t, "SELECT pg_reload_conf()")
	return strings.Replace(pg.URL, "postgres@", "rotated@", 1)
}

// A cloud's tokens: a program prints them, each says when it expires, and the server takes back every one long before
// that and ends its sessions. Breaks it catches: a token that is kept although it was refused, a relay that halts for
// it, a program that is run for each connection. Seen to fail with a refused token kept, and with a refusal that halts.
func TestTokensRotateUnderLoad(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{})
	url := rotated(t, pg)
	dir := t.TempDir()
	program, token, runs := filepath.Join(dir, "program"), filepath.Join(dir, "token"), filepath.Join(dir, "runs")
	issue := func(password string) {
		expires := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		writeSecret(t, token+".new", fmt.Sprintf(`{"password": %q, "expires_at": %q}`, password, expires))
		if err := os.Rename(token+".new", token); err != nil {
			t.Fatal(err)
		}
	}
	issue("first")
	text := fmt.Sprintf("#!/bin/sh\necho run >> %s\nexec cat \"$1\"\n", runs)
	if err := os.WriteFile(program, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	s := startScenario(t, pg, harness.Kafka(t), "postgres.url", url, "postgres.password_command", program+","+token)
	load := s.load(t, harness.Workload{Rate: 1000})
	rotations := harness.Count(t, "rotated tokens")
	for n := range rotations {
		load.WaitCommitted(t, 300, time.Minute)
		password := fmt.Sprintf("token-%d", n)
		pg.Exec(t, "ALTER ROLE rotated PASSWORD '"+password+"'")
		issue(password)
		pg.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'rotated'")
		harness.Eventually(t, time.Minute, "the relay streams again", func(context.Context) string {
			if pg.Query(t, "SELECT count(*) FROM pg_stat_replication WHERE usename = 'rotated'") == "1" {
				return ""
			}
			return "no stream"
		})
	}
	s.relay.WaitReady(t, time.Minute)
	load.Stop(t)
	s.settled(t)
	if strings.Contains(s.relay.Log(t), `"message":"halted"`) {
		t.Error("a refused token is a halt, want another attempt")
	}
	report := s.judge(t, 0)
	log, err := os.ReadFile(runs)
	if err != nil {
		t.Fatal(err)
	}
	ran := strings.Count(string(log), "run\n")
	t.Logf("%d tokens under %d events: the program ran %d times", rotations, report.Expected, ran)
	if most := 10 * (rotations + 2); ran > most {
		t.Errorf("runs of the program: got %d for %d tokens, want at most %d", ran, rotations, most)
	}
}

// The password changes on the server first and in the file later; in the meantime nothing lets the relay in. Breaks it
// catches: a password that is read once; a process that ends, or that knocks at the server without pause. Seen to fail
// with the password read at the start only.
func TestRotatedPasswordIsReadAgain(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	refused := &counter{text: "password authentication failed"}
	pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{Log: refused,
		Settings: map[string]string{"log_min_messages": "fatal"}})
	url := rotated(t, pg)
	secret := filepath.Join(t.TempDir(), "password")
	writeSecret(t, secret, "first")
	s := startScenario(t, pg, harness.Kafka(t), "postgres.url", url, "postgres.password_file", secret)
	load := s.load(t, harness.Workload{Rate: 300})
	load.WaitCommitted(t, 300, time.Minute)
	pg.Exec(t, "ALTER ROLE rotated PASSWORD 'second'")
	pg.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'rotated'")
	harness.Eventually(t, time.Minute, "the relay is refused", func(context.Context) string {
		if refused.count() == 0 {
			return "not yet"
		}
		return ""
	})
	const seconds = 3
	before := refused.count()
	hold(t, seconds, func() int { return 0 })
	attempts := refused.count() - before
	writeSecret(t, secret, "second")
	began := time.Now()
	s.relay.WaitReady(t, time.Minute)
	took := time.Since(began)
	load.WaitCommitted(t, 300, time.Minute)
	load.Stop(t)
	s.settled(t)
	s.judge(t, 0)
	t.Logf("refused %d times in %d s; well again %v after the file was written", attempts, seconds,
		took.Round(time.Millisecond))
	if attempts > 20*seconds {
		t.Errorf("attempts to log in: got %d in %d s, want a pause between them", attempts, seconds)
	}
}

// A grant that the relay needs is taken from its role and given back. Breaks it catches: an event taken for recorded
// that is not; a relay that must be started again. Seen to fail with a refused journal write taken for done.
func TestLostGrantIsWaitedFor(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{})
	s := newScenario(t, pg, harness.Kafka(t))
	if code, stdout, stderr := s.relay.Run(t, "init", "--roles", "--role-stream", "stream", "--role-sql",
		"sql"); code != 0 {
		t.Fatalf("init --roles: exit code %d:\n%s%s", code, stdout, stderr)
	}
	as := func(role string) string { return strings.Replace(pg.URL, "postgres@", role+"@", 1) }
	s.settings = s.settings.With("postgres.url", as("sql"), "postgres.replication_url", as("stream"))
	s.relay = harness.NewRelay(t, s.settings)
	s.start(t)
	load := s.load(t, harness.Workload{Rate: 300})
	load.WaitCommitted(t, 300, time.Minute)
	pg.Exec(t, "REVOKE INSERT ON cdc_relay_journal FROM sql")
	harness.Eventually(t, time.Minute, "the relay says what it may not do", func(context.Context) string {
		if _, body := s.relay.Get(t, "/readyz"); !strings.Contains(body, "42501") {
			return "it says " + body
		}
		return ""
	})
	journal := pg.Query(t, "SELECT count(*) FROM cdc_relay_journal")
	load.WaitCommitted(t, 300, time.Minute)
	if now := pg.Query(t, "SELECT count(*) FROM cdc_relay_journal"); now != journal {
		t.Errorf("journal rows without the grant: got %s, want %s as before", now, journal)
	}
	pg.Exec(t, "GRANT INSERT ON cdc_relay_journal TO sql")
	s.relay.WaitReady(t, time.Minute)
	load.Stop(t)
	s.settled(t)
	report := s.judge(t, 0)
	t.Logf("%s of %d events were journaled when the grant was taken away", journal, report.Expected)
}
