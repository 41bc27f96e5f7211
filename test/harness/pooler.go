package harness

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/embedded/child"
)

// PoolerSessions is how many sessions of the server the pooler has at most.
const PoolerSessions = 3

// Pooler starts PgBouncer in front of the database, with transactions pooled, and returns the URL through it. The test
// is left out, or fails in CI, where it is not installed.
func Pooler(t testing.TB, pg *PG) string {
	t.Helper()
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		missing(t, "PgBouncer", err)
	}
	port, err := embedded.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "cdc-relay-pooler-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	config := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf(`[databases]
%[1]s = dbname=%[1]s user=postgres host=127.0.0.1 port=%[2]d
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %[3]d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = %[4]d
max_client_conn = 100
`, pg.Database, pg.Server.Port(), port, PoolerSessions)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	process, err := child.Start(child.Config{Path: path, Args: []string{"-q", config}, Dir: dir, As: nobody(t),
		DeathSignal: syscall.SIGKILL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(process.Kill)
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	Eventually(t, 30*time.Second, "PgBouncer listens", func(context.Context) string {
		if process.Ended() {
			t.Fatalf("PgBouncer ended: %s", process.LastWords())
		}
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			return err.Error()
		}
		_ = conn.Close()
		return ""
	})
	return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", address, pg.Database)
}

// PoolerVersion is the name and version of what Pooler starts.
func PoolerVersion(t testing.TB) string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "pgbouncer", "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(output), "\n")
	return line
}

// no one is whom a server that refuses root runs as; nil when this process is not root.
func nobody(t testing.TB) *child.Account {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	found, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, errUID := strconv.ParseUint(found.Uid, 10, 32)
	gid, errGID := strconv.ParseUint(found.Gid, 10, 32)
	if errUID != nil || errGID != nil {
		t.Fatalf("user nobody has ids %s and %s, want numbers", found.Uid, found.Gid)
	}
	return &child.Account{UID: uint32(uid), GID: uint32(gid)}
}
