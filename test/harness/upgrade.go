package harness

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/embedded"
)

// Upgrade moves everything on the test's own server to a new one by pg_upgrade, as a major upgrade does: system
// identifier and WAL are new, slots are gone, the objects keep their oids. Both servers are of the same version,
// because only an installed one brings the program along. The old one is stopped for good.
func (p *PG) Upgrade(t testing.TB) *PG {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), postgresPatience)
	defer cancel()
	to := NewOwnPostgres(t, embedded.PostgresConfig{})
	if err := execOn(ctx, to.Server.URL("postgres"), "DROP DATABASE "+to.Database); err != nil {
		t.Fatalf("empty the new cluster: %v", err)
	}
	binaries, err := to.program("postgres")
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range []*embedded.Postgres{p.Server, to.Server} {
		if err := server.Fast(ctx); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Dir(binaries)
	to.Program(t, "pg_upgrade", "--username", "postgres", "--no-sync", "--old-bindir", dir, "--new-bindir", dir,
		"--old-datadir", filepath.Join(p.Server.Dir(), "data"), "--new-datadir", filepath.Join(to.Server.Dir(), "data"))
	if err := to.Server.Start(ctx); err != nil {
		t.Fatal(err)
	}
	to.Database, to.URL = p.Database, to.Server.URL(p.Database)
	return to
}

// Snapshot copies the test's own server, which is stopped for it, and returns what puts the copy in the server's place,
// as the return to a snapshot of the machine does: everything that happened since is undone, slots included.
func (p *PG) Snapshot(t testing.TB) (restore func()) {
	t.Helper()
	data := filepath.Join(p.Server.Dir(), "data")
	p.whileStopped(t, exec.Command("cp", "-a", data, data+".snapshot"))
	return func() {
		t.Helper()
		p.whileStopped(t, exec.Command("sh", "-c", `rm -r "$1" && mv "$1.snapshot" "$1"`, "restore", data))
	}
}

// whileStopped runs a command between a stop and a start of the server.
func (p *PG) whileStopped(t testing.TB, command *exec.Cmd) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.Server.Fast(ctx); err != nil {
		t.Fatal(err)
	}
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", command, err, output)
	}
	if err := p.Server.Start(ctx); err != nil {
		t.Fatal(err)
	}
}
