package test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// bare is a place that has the program, its configuration and nothing else: no /tmp, no /etc, no /proc, no home,
// nothing that can be written to, and a user whom no file names.
type bare struct{ dir string }

func newBare(t *testing.T, text []byte) bare {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can change the root of a process")
	}
	b := bare{t.TempDir()}
	program, err := os.ReadFile(harness.Build(t, ".", "./cmd/cdc-relay"))
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(b.dir, "cdc-relay"), program, 0o555),
			os.WriteFile(filepath.Join(b.dir, "relay.yaml"), text, 0o444), os.Chmod(b.dir, 0o555))
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b bare) command(ctx context.Context, out *bytes.Buffer, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, "/cdc-relay", append(args, "--config", "/relay.yaml")...)
	c.Env, c.Dir, c.Stdout, c.Stderr = []string{}, "/", out, out
	c.SysProcAttr = &syscall.SysProcAttr{Chroot: b.dir, Pdeathsig: syscall.SIGKILL,
		Credential: &syscall.Credential{Uid: 54321, Gid: 54321}}
	return c
}

// A container's user without a name, on a read-only file system without anything but the program. Breaks it catches: a
// command that needs a home, a temporary directory or a name, and does not say so, and a secret in the dump of SIGQUIT.
func TestRelayNeedsNothingOfItsMachine(t *testing.T) {
	if harness.Count(t, "brokers broken from outside") == 0 {
		t.Skip("left to the night")
	}
	const secret, token = "hunter2-of-postgres", "0123456789-token-0123456789-token"
	pg := harness.Postgres(t)
	s := newScenario(t, pg, harness.Kafka(t))
	s.relay.Init(t)
	settings := s.settings.With("postgres.url", strings.Replace(pg.URL, "postgres@", "postgres:"+secret+"@", 1),
		"http.token_file", "/token")
	text, err := settings.YAML()
	if err != nil {
		t.Fatal(err)
	}
	b := newBare(t, text)
	if err := os.WriteFile(filepath.Join(b.dir, "token"), []byte(token), 0o444); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"config show": "postgres.url", "check": "ok    wal_level", "init --dry-run": "nothing is missing",
		"dlq list": "no dead", "cleanup": "0 dead letters", "slot status": "position",
		"verify": "name with --temp or TMPDIR a directory",
	} {
		var said bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_ = b.command(ctx, &said, strings.Fields(args)...).Run()
		cancel()
		if !strings.Contains(said.String(), want) || strings.Contains(said.String(), secret) {
			t.Errorf("%s: got %s, want %q and no secret", args, &said, want)
		}
	}
	var log bytes.Buffer
	running := b.command(t.Context(), &log, "run")
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	s.load(t, harness.Workload{Events: 100, Writers: 2}).Wait(t)
	s.settled(t)
	s.judge(t, 0)
	if err := running.Process.Signal(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	_ = running.Wait()
	dump := log.String()
	if !strings.Contains(dump, "SIGQUIT") || !strings.Contains(dump, "goroutine ") {
		t.Errorf("got no dump of the goroutines: %.2000s", dump)
	}
	for _, hidden := range []string{secret, token} {
		if strings.Contains(dump, hidden) {
			t.Errorf("log or dump show %s", hidden)
		}
	}
}
