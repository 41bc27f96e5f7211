package harness

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// Run runs another command of the binary to its end, with the same configuration, and returns its exit code and what it
// wrote to stdout and stderr.
func (r *Relay) Run(t testing.TB, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	state, stdout, stderr := r.run(t, time.Minute, args, nil)
	return state.ExitCode(), stdout, stderr
}

// RunMeasured is Run for a command that may take ten minutes and must succeed. peak is the most memory that it held, in
// bytes, cpu the processor time that it took, of the kernel too.
func (r *Relay) RunMeasured(t testing.TB, args ...string) (stdout string, peak int64, cpu time.Duration) {
	t.Helper()
	// Not the kernel's account at the end: a child begins with what its parent had, and a test with the race detector has
	// a lot.
	watch := func(pid int, ended <-chan struct{}) {
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for {
			if now, err := peakRSS(pid); err == nil { // it is over between two looks
				peak = max(peak, now)
			}
			select {
			case <-ticker.C:
			case <-ended:
				return
			}
		}
	}
	state, stdout, stderr := r.run(t, 10*time.Minute, args, watch)
	if state.ExitCode() != 0 {
		t.Fatalf("%s: exit code %d, want 0; it said:\n%s%s", strings.Join(args, " "), state.ExitCode(), stdout, stderr)
	}
	return stdout, peak, state.UserTime() + state.SystemTime()
}

func (r *Relay) run(t testing.TB, patience time.Duration, args []string,
	watch func(pid int, ended <-chan struct{})) (state *os.ProcessState, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, r.binary, append(args, "--config", r.Config)...)
	command.Dir, command.Env = r.dir, relayEnviron()
	var out, diagnostics bytes.Buffer
	command.Stdout, command.Stderr = &out, &diagnostics
	err := command.Start()
	if err == nil {
		ended := make(chan struct{})
		var watching sync.WaitGroup
		if watch != nil {
			watching.Go(func() { watch(command.Process.Pid, ended) })
		}
		err = command.Wait()
		close(ended)
		watching.Wait()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("run %s: %v", strings.Join(args, " "), err)
	}
	if ctx.Err() != nil {
		t.Fatalf("run %s: not done within %v; stderr: %s", strings.Join(args, " "), patience, diagnostics.String())
	}
	return command.ProcessState, out.String(), diagnostics.String()
}
