package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded"
)

// Upgrade moves everything on the test's own server to a new one by pg_upgrade, as a major upgrade does: system
// identifier and WAL are new, slots are gone, the objects keep their oids. The new server is the one that is installed,
// because only that brings the program along; the old one may be an older major. It is stopped permanently.
func (p *PG) Upgrade(t testing.TB) *PG {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), postgresPatience)
	defer cancel()
	to := NewOwnPostgres(t, embedded.PostgresConfig{BinDir: installedServer(t)})
	if of := p.Server.Version(); of > to.Server.Version() {
		t.Skipf("SKIPPED, NOTHING WAS TESTED: pg_upgrade of %d cannot read a server of %d", to.Server.Version(), of)
	}
	if err := execOn(ctx, to.Server.URL("postgres"), "DROP DATABASE "+to.Database); err != nil {
		t.Fatalf("empty the new cluster: %v", err)
	}
	before, after := p.upgradable(t, to)
	for _, server := range []*embedded.Postgres{p.Server, to.Server} {
		if err := server.Fast(ctx); err != nil {
			t.Fatal(err)
		}
	}
	to.Program(t, "pg_upgrade", "--username", "postgres", "--no-sync", "--old-bindir", before, "--new-bindir", after,
		"--old-datadir", filepath.Join(p.Server.Dir(), "data"), "--new-datadir", filepath.Join(to.Server.Dir(), "data"))
	if err := to.Server.Start(ctx); err != nil {
		t.Fatal(err)
	}
	to.Database, to.URL = p.Database, to.Server.URL(p.Database)
	return to
}

// installedServer is the folder of the newest server that is installed with all its programs.
func installedServer(t testing.TB) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pg_upgrade") // the only error is a malformed pattern
	if len(found) == 0 {
		missing(t, "pg_upgrade", errors.New("no server with it is installed"))
	}
	return filepath.Dir(found[len(found)-1])
}

// resetter is pg_resetwal of a later version, which has the same control file, for a look at an earlier cluster: it
// refuses the version that stands in PG_VERSION.
const resetter = `#!/bin/sh
[ "$1" = -V ] && exec "%[2]s/pg_resetwal" -V
for data; do :; done
aside=$(mktemp -d) && mkdir "$aside/global" && cp "$data/global/pg_control" "$aside/global" &&
cp "%[1]s/PG_VERSION" "$aside" && ln -s "$data/pg_wal" "$aside" && "%[2]s/pg_resetwal" -n "$aside"
code=$?; rm -r "$aside"; exit $code
`

// upgradable are the folders of programs that pg_upgrade wants of the old server and of the new one. A downloaded
// server has none that read its control file; from 14 to 17 that file is the same, so the new server's do.
func (p *PG) upgradable(t testing.TB, to *PG) (before, after string) {
	t.Helper()
	before, err := p.binaries()
	if err != nil {
		t.Fatal(err)
	}
	if after, err = to.binaries(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(before, "pg_controldata")); err == nil {
		return before, after
	}
	mixed := filepath.Join(to.Server.Dir(), "former-bin")
	if err := os.Mkdir(mixed, 0o755); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(resetter, filepath.Join(to.Server.Dir(), "data"), after)
	if err := os.WriteFile(filepath.Join(mixed, "pg_resetwal"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"postgres": before, "pg_ctl": before, "pg_controldata": after} {
		if err := os.Symlink(filepath.Join(dir, name), filepath.Join(mixed, name)); err != nil {
			t.Fatal(err)
		}
	}
	return mixed, after
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
