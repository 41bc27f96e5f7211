package harness

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded"
)

// standbySlot is the physical slot by which the standby follows its primary.
const standbySlot = "standby"

// NewStandby makes a streaming, readable standby of the test's own server, which is stopped for the copy and started
// again. On PostgreSQL 17 and later it also keeps copies of the slots that ask for it.
func NewStandby(t testing.TB, primary *PG) *PG {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := primary.Server.Fast(ctx); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(dataAbove(), "cdc-relay-standby-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the standby's directory: %v", err)
		}
	})
	if output, err := exec.CommandContext(ctx, "cp", "-a", filepath.Join(primary.Server.Dir(), "data"),
		dir).CombinedOutput(); err != nil {
		t.Fatalf("copy the cluster: %v: %s", err, output)
	}
	touch(t, filepath.Join(dir, "data", "standby.signal"))
	if err := primary.Server.Start(ctx); err != nil {
		t.Fatal(err)
	}
	primary.Exec(t, "SELECT pg_create_physical_replication_slot('"+standbySlot+"', true)")

	settings := map[string]string{
		"primary_conninfo": fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=%s", primary.Server.Port(),
			primary.Database),
		"primary_slot_name":    standbySlot,
		"hot_standby_feedback": "on",
	}
	if primary.Server.Version() >= 17 {
		settings["sync_replication_slots"] = "on"
	}
	server, err := embedded.StartPostgres(ctx, postgresConfig(embedded.PostgresConfig{
		Dir: dir, Version: strconv.Itoa(primary.Server.Version()), Settings: settings,
	}))
	if err != nil {
		t.Fatalf("start the standby: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Errorf("stop the standby: %v", err)
		}
	})
	return &PG{Server: server, Database: primary.Database, URL: server.URL(primary.Database)}
}

// touch makes an empty file that belongs to whom its directory belongs to.
func touch(t testing.TB, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	GiveAway(t, path)
}

// GiveAway makes a file belong to whom its directory belongs to, such as the account that a server runs as.
func GiveAway(t testing.TB, path string) {
	t.Helper()
	uid, gid := owner(t, filepath.Dir(path))
	if err := os.Chown(path, uid, gid); err != nil {
		t.Fatal(err)
	}
}

func owner(t testing.TB, path string) (uid, gid int) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	stat := info.Sys().(*syscall.Stat_t)
	return int(stat.Uid), int(stat.Gid)
}

// Either is the same database on whichever of two servers takes writes.
func (p *PG) Either(other *PG) *PG {
	host := func(p *PG) string { return "127.0.0.1:" + strconv.Itoa(p.Server.Port()) }
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Host: host(p) + "," + host(other), Path: "/" + p.Database,
		RawQuery: "sslmode=disable&connect_timeout=5&target_session_attrs=read-write"}
	return &PG{Server: p.Server, Database: p.Database, URL: u.String()}
}

// WaitReplayed waits until the standby shows everything that is committed on the primary now.
func (p *PG) WaitReplayed(t testing.TB, primary *PG) {
	t.Helper()
	end := primary.Query(t, "SELECT pg_current_wal_lsn()")
	Eventually(t, time.Minute, "the standby has replayed up to "+end, func(ctx context.Context) string {
		got, err := p.TryQuery(ctx, fmt.Sprintf("SELECT pg_last_wal_replay_lsn() >= '%s'", end))
		switch {
		case err != nil:
			return err.Error()
		case got != "true":
			return "not yet"
		}
		return ""
	})
}

// Promote makes the standby a primary and returns when it takes writes.
func (p *PG) Promote(t testing.TB) {
	t.Helper()
	if got := p.Query(t, "SELECT pg_promote(true, 60)"); got != "true" {
		t.Fatalf("pg_promote: got %s, want true", got)
	}
}

// Program runs one of Postgres's programs from beside the stopped server's own, as the user that the server runs as, in
// the directory of the cluster. The test is left out, or fails in CI, where there is none: bundles have only the
// server.
func (p *PG) Program(t testing.TB, name string, args ...string) {
	t.Helper()
	path, err := p.program(name)
	if err != nil {
		missing(t, name, err)
	}
	command := exec.CommandContext(t.Context(), path, args...)
	command.Dir = p.Server.Dir()
	command.Env = []string{"LC_ALL=C"}
	if os.Geteuid() == 0 {
		uid, gid := owner(t, p.Server.Dir())
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, output)
	}
}

// program finds one of the server's programs beside it, or, since a downloaded server brings none of those that make
// and read dumps, the newest that is installed.
func (p *PG) program(name string) (string, error) {
	dir, err := p.binaries()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	if _, err = os.Stat(path); err == nil {
		return path, nil
	}
	installed, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name) // the only error is a malformed pattern
	if len(installed) == 0 {
		return "", fmt.Errorf("find the server's programs: %w", err)
	}
	return installed[len(installed)-1], nil
}

// binaries is the folder of the server's programs.
func (p *PG) binaries() (string, error) {
	options, err := os.ReadFile(filepath.Join(p.Server.Dir(), "data", "postmaster.opts"))
	if err != nil {
		return "", fmt.Errorf("find the server's programs: %w", err)
	}
	server, _, _ := strings.Cut(string(options), " ") // the first word is the server's path
	return filepath.Dir(server), nil
}
