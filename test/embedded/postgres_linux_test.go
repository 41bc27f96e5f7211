package embedded_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/test/embedded"
)

// start skips the test when nothing can be started here, except in CI. t.TempDir is not used: root's server must be
// able to reach its directory, whatever TMPDIR says.
func start(t *testing.T, c embedded.PostgresConfig) *embedded.Postgres {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short: it starts a server")
	}
	p, err := embedded.StartPostgres(t.Context(), c)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("start Postgres: %v", err)
		}
		t.Skipf("SKIPPED, NOTHING WAS TESTED: no Postgres can be started here: %v", err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Errorf("stop Postgres: %v", err)
		}
	})
	return p
}

func connect(t *testing.T, p *embedded.Postgres) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), p.URL("postgres"))
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func query(t *testing.T, conn *pgx.Conn, sql string) string {
	t.Helper()
	var got string
	if err := conn.QueryRow(t.Context(), sql).Scan(&got); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return got
}

// Breaks it catches: a setting lost on the way to the server, Settings not winning over the defaults, a quote in a
// value.
func TestPostgresRunsWithTheDocumentedSettings(t *testing.T) {
	p := start(t,
		embedded.PostgresConfig{Settings: map[string]string{"max_wal_senders": "7", "application_name": `it's a \test`}})
	conn := connect(t, p)
	for _, setting := range []struct{ name, want string }{
		{"wal_level", "logical"},
		{"fsync", "off"},
		{"max_wal_senders", "7"},
		{"max_replication_slots", "20"},
		{"max_prepared_transactions", "20"},
		{"listen_addresses", "127.0.0.1"},
		{"unix_socket_directories", ""},
		{"TimeZone", "UTC"},
		{"server_encoding", "UTF8"},
	} {
		if got := query(t, conn, "SHOW "+setting.name); got != setting.want {
			t.Errorf("%s: got %q, want %q", setting.name, got, setting.want)
		}
	}
	if got, want := query(t, conn, "SELECT reset_val FROM pg_settings WHERE name = 'application_name'"),
		`it's a \test`; got != want {
		t.Errorf("setting with a quote: got %q, want %q", got, want)
	}
}

// Other users of the machine reach 127.0.0.1, too. Break it catches: a server that lets them in without its password.
// Written, but not run, to fail with trust for all.
func TestPostgresWithAPasswordLetsNobodyInWithoutIt(t *testing.T) {
	p := start(t, embedded.PostgresConfig{Password: "it's secret\\"})
	if got := query(t, connect(t, p), "SELECT current_user::text"); got != "postgres" {
		t.Errorf("with the password: got user %s, want postgres", got)
	}
	for _, user := range []*url.Userinfo{url.User("postgres"), url.UserPassword("postgres", "wrong")} {
		address, err := url.Parse(p.URL("postgres"))
		if err != nil {
			t.Fatal(err)
		}
		address.User = user
		if conn, err := pgx.Connect(t.Context(), address.String()); err == nil {
			_ = conn.Close(t.Context())
			t.Errorf("%s got in", user)
		}
	}
}

// Breaks it catches: a Stop that leaves the directory or the process.
func TestStopLeavesNothingBehind(t *testing.T) {
	p := start(t, embedded.PostgresConfig{})
	pid, dir := p.PID(), p.Dir()
	if err := p.Stop(); err != nil {
		t.Fatalf("Stop: %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directory %s after Stop: got %v, want it gone", dir, err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("signal to process %d after Stop: got %v, want no such process", pid, err)
	}
	if err := p.Stop(); err != nil {
		t.Errorf("second Stop: got %v, want nil", err)
	}
	if err := p.Start(t.Context()); err == nil {
		t.Error("Start after Stop: got nil, want an error")
	}
}

// Breaks it catches: a port that moves, a Start that meets the old server's shared memory or lock file, a Start that
// returns before recovery is over, an end that is not waited for.
func TestPostgresStartsAgainAfterEveryKindOfEnd(t *testing.T) {
	p := start(t, embedded.PostgresConfig{})
	port := p.Port()
	if _, err := connect(t, p).Exec(t.Context(), "CREATE TABLE kept (n int)"); err != nil {
		t.Fatal(err)
	}
	fast := func() error { return p.Fast(t.Context()) }
	frozen := func() error { return errors.Join(p.Freeze(), p.Kill9()) }
	ends := []struct {
		name string
		end  func() error
	}{{"Fast", fast}, {"Immediate", p.Immediate}, {"Kill9", p.Kill9}, {"Kill9 while frozen", frozen}}
	for n, e := range ends {
		if _, err := connect(t, p).Exec(t.Context(), "INSERT INTO kept VALUES (1)"); err != nil {
			t.Fatalf("before %s: %v", e.name, err)
		}
		if err := e.end(); err != nil {
			t.Fatalf("%s: %v", e.name, err)
		}
		if got := p.PID(); got != 0 {
			t.Errorf("PID after %s: got %d, want 0", e.name, got)
		}
		if err := p.Start(t.Context()); err != nil {
			t.Fatalf("Start after %s: %v", e.name, err)
		}
		if p.Port() != port {
			t.Errorf("port after %s: got %d, want %d", e.name, p.Port(), port)
		}
		if got, want := query(t, connect(t, p), "SELECT count(*)::text FROM kept"), strconv.Itoa(n+1); got != want {
			t.Errorf("rows after %s: got %s, want %s", e.name, got, want)
		}
	}
	if err := p.Start(t.Context()); err == nil {
		t.Error("Start of a running server: got nil, want an error")
	}
}

// Breaks it catches: a Freeze that leaves backends running, a Thaw that forgets some.
func TestFreezeSilencesSessionsUntilThaw(t *testing.T) {
	p := start(t, embedded.PostgresConfig{})
	conn := connect(t, p)
	query(t, conn, "SELECT 'warm'")
	if err := p.Freeze(); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() { answered <- conn.Ping(t.Context()) }()
	select {
	case err := <-answered:
		t.Fatalf("a frozen server answered: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	if err := p.Thaw(); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("after Thaw: %v", err)
	}
}

// Breaks it catches: a directory of the caller's removed by Stop, a cluster made again over old data.
func TestPostgresKeepsAGivenDirectory(t *testing.T) {
	dir, err := os.MkdirTemp("", "embedded-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	first := start(t, embedded.PostgresConfig{Dir: dir})
	if _, err := connect(t, first).Exec(t.Context(), "CREATE TABLE kept AS SELECT 'here' AS word"); err != nil {
		t.Fatal(err)
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	second, err := embedded.StartPostgres(t.Context(),
		embedded.PostgresConfig{Dir: dir, Settings: map[string]string{"wal_level": "replica"}})
	if err != nil {
		t.Fatalf("start on the directory of the first server: %v", err)
	}
	t.Cleanup(func() { _ = second.Stop() })
	conn := connect(t, second)
	if got := query(t, conn, "SELECT word FROM kept"); got != "here" {
		t.Errorf("row of the first server: got %q, want %q", got, "here")
	}
	if got := query(t, conn, "SHOW wal_level"); got != "replica" {
		t.Errorf("wal_level of the second server: got %q, want %q", got, "replica")
	}
}

// Breaks it catches: errors without the cause, a temporary directory left by a failed start.
func TestFailedStartSaysWhyAndCleansUp(t *testing.T) {
	start(t, embedded.PostgresConfig{}) // skips where no server can start
	temp := t.TempDir()
	if err := os.Chmod(filepath.Dir(temp), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", temp)
	for _, bad := range []struct {
		name   string
		config embedded.PostgresConfig
		want   string
	}{
		{"unknown setting", embedded.PostgresConfig{Settings: map[string]string{"no_such_setting": "1"}}, "no_such_setting"},
		{"empty BinDir", embedded.PostgresConfig{BinDir: temp}, "find Postgres's programs"},
		{"old version", embedded.PostgresConfig{Version: "13"}, "from 14"},
		{"version that nobody has", embedded.PostgresConfig{Version: "99"}, "no Postgres 99"},
	} {
		p, err := embedded.StartPostgres(t.Context(), bad.config)
		if err == nil {
			_ = p.Stop()
			t.Errorf("%s: got no error", bad.name)
			continue
		}
		if !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: got %q, want it to say %q", bad.name, err, bad.want)
		}
	}
	left, err := os.ReadDir(temp)
	if err != nil || len(left) != 0 {
		t.Errorf("left behind by failed starts: got %v (%v), want nothing", left, err)
	}
}

// TestPostgresDiesWithItsParent kills a process that started a server. Break it catches: Pdeathsig missing, or bound to
// a thread that Go ends early or keeps.
func TestPostgresDiesWithItsParent(t *testing.T) {
	if os.Getenv("EMBEDDED_TEST_PARENT") != "" {
		p, err := embedded.StartPostgres(context.Background(),
			embedded.PostgresConfig{Dir: os.Getenv("EMBEDDED_TEST_PARENT")})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = os.Stdout.WriteString("pid " + strconv.Itoa(p.PID()) + "\n")
		select {}
	}
	start(t, embedded.PostgresConfig{}) // skips where no server can start
	dir, err := os.MkdirTemp("", "embedded-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	parent := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPostgresDiesWithItsParent$")
	parent.Env = append(os.Environ(), "EMBEDDED_TEST_PARENT="+dir)
	output, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 64)
	n, err := output.Read(line)
	if err != nil {
		t.Fatalf("read the child's answer: %v", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(string(line[:n]), "pid ")))
	if err != nil {
		t.Fatalf("child said %q", line[:n])
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("server %d of the child: %v", pid, err)
	}
	_ = parent.Process.Kill()
	_ = parent.Wait()
	gone := func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || zombie(pid) }
	for deadline := time.Now().Add(10 * time.Second); !gone(); {
		if time.Now().After(deadline) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatalf("server %d outlived its parent by 10 s", pid)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func zombie(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err == nil && strings.Contains(string(stat), ") Z ")
}
