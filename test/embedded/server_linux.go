package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/cdc-relay/cdc-relay/test/embedded/child"
)

func supported() error { return nil }

// startServer starts a Postgres that does a fast shutdown when this process dies.
func startServer(as *account, c PostgresConfig, path string, args ...string) (*child.Process, error) {
	return child.Start(child.Config{
		Path:        path,
		Args:        args,
		Dir:         c.Dir,
		Env:         environment(c.Dir),
		As:          as.child(),
		Log:         c.Log,
		DeathSignal: syscall.SIGINT,
	})
}

// run runs a command to its end; the error of a failed one carries what it said.
func run(ctx context.Context, as *account, dir, path string, args ...string) error {
	command := exec.CommandContext(ctx, path, args...)
	command.Dir = dir
	command.Env = environment(dir)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if as != nil {
		command.SysProcAttr.Credential = &syscall.Credential{Uid: as.uid, Gid: as.gid}
	}
	output, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(path), errors.Join(err, ctx.Err()), bytes.TrimSpace(output))
	}
	return nil
}

// environment is all that the servers get: the PG* variables of the caller are meant for clients.
func environment(dir string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "LC_ALL=C"}
}
