package harness

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/embedded/child"
)

// ForgetfulPG is a server on a file system that forgets in a crash what was not synced, as the machine under it would.
type ForgetfulPG struct {
	*PG

	durable, seen string // what is synced, and where Postgres sees it and everything else
	process       *child.Process
}

var forgetful = sync.OnceValues(func() (string, error) { return build("test/forgetful", ".") })

// NewForgetfulPostgres starts a server for this test alone. It syncs, as it does not elsewhere; c.Dir is not used. Only
// root can mount a file system: the test is skipped without root, and on a kernel without FUSE.
func NewForgetfulPostgres(t testing.TB, c embedded.PostgresConfig) *ForgetfulPG {
	t.Helper()
	needsServers(t)
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED, NOTHING WAS TESTED: only root can mount a file system that forgets")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skipf("SKIPPED, NOTHING WAS TESTED: no file system that forgets can be mounted here: %v", err)
	}
	if _, err := forgetful(); err != nil {
		t.Fatal(err)
	}
	base, err := os.MkdirTemp("", "cdc-relay-forgets-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	f := &ForgetfulPG{durable: filepath.Join(base, "durable"), seen: filepath.Join(base, "seen")}
	if err := errors.Join(os.Chmod(base, 0o755), os.Mkdir(f.seen, 0o755)); err != nil {
		t.Fatal(err)
	}
	f.makeCluster(t, c)
	f.mount(t)
	t.Cleanup(func() { f.forget(t) })
	c.Dir = f.seen
	settings := map[string]string{
		"fsync":            "on",
		"wal_writer_delay": "1s", // a commit that does not wait can be lost for that long
	}
	maps.Copy(settings, c.Settings)
	c.Settings = settings
	f.PG = NewOwnPostgres(t, c)
	return f
}

// makeCluster makes the cluster where everything is durable.
func (f *ForgetfulPG) makeCluster(t testing.TB, c embedded.PostgresConfig) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), postgresPatience)
	defer cancel()
	c.Dir = f.durable
	server, err := embedded.StartPostgres(ctx, postgresConfig(c))
	if err != nil {
		missing(t, "Postgres", err)
	}
	if err := errors.Join(server.Fast(ctx), server.Stop()); err != nil {
		t.Fatalf("stop the server that made the cluster: %v", err)
	}
}

func (f *ForgetfulPG) mount(t testing.TB) {
	t.Helper()
	path, err := forgetful()
	if err == nil {
		f.process, err = child.Start(child.Config{Path: path, Args: []string{f.durable, f.seen}, Dir: os.TempDir(),
			DeathSignal: syscall.SIGKILL})
	}
	if err != nil {
		t.Fatalf("start the file system that forgets: %v", err)
	}
	Eventually(t, time.Minute, "the file system is mounted", func(context.Context) string {
		if f.process.Ended() {
			t.Fatalf("the file system ended with code %d: %s", f.process.ExitCode(), f.process.LastWords())
		}
		if said := f.process.LastWords(); !strings.Contains(said, "mounted") {
			return "it says: " + said
		}
		return ""
	})
}

var forgot = regexp.MustCompile(`forgot (\d+) pages`)

// forget ends the file system with everything that was not synced, and says how many pages of 4 KiB that were.
func (f *ForgetfulPG) forget(t testing.TB) (pages int) {
	t.Helper()
	f.process.Signal(syscall.SIGINT)
	select {
	case <-f.process.Done():
	case <-time.After(time.Minute):
		f.process.Kill()
		t.Error("the file system that forgets did not end within a minute")
	}
	if err := syscall.Unmount(f.seen, syscall.MNT_DETACH); err != nil {
		t.Fatalf("unmount the file system that forgets: %v", err)
	}
	said := forgot.FindStringSubmatch(f.process.LastWords())
	if said == nil {
		t.Fatalf("the file system that forgets said: %s", f.process.LastWords())
	}
	pages, _ = strconv.Atoi(said[1])
	return pages
}

// Crash plays the end of the machine: the server is killed, what it had not synced is gone, and it starts again. It
// says how many pages of 4 KiB were lost.
func (f *ForgetfulPG) Crash(t testing.TB) (pages int) {
	t.Helper()
	if err := f.Server.Kill9(); err != nil {
		t.Fatal(err)
	}
	pages = f.forget(t)
	f.mount(t)
	if err := f.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return pages
}
