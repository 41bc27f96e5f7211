package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// runsAsCommand makes the test binary be cdc-relay-demo: the tests run the real program in a process of its own.
const runsAsCommand = "TEST_BINARY_IS_THE_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(runsAsCommand) != "" {
		main()
		return
	}
	harness.Main(m)
}

// command prepares the program with an environment of its own: none of the surroundings' CDC_RELAY_ variables.
func command(ctx context.Context, t testing.TB, environ []string,
	args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append([]string{
		runsAsCommand + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.Getenv("TMPDIR"),
	}, environ...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	return cmd, &out, &errs
}

// runs runs the program to its end and wants the code and the texts; a text that begins with ! must be absent.
func runs(t *testing.T, environ []string, code int, want []string, args ...string) (out string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	cmd, stdout, stderr := command(ctx, t, environ, args...)
	_ = cmd.Run()
	said := stdout.String() + stderr.String()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("got exit code %d, want %d: %s", got, code, said)
	}
	for _, w := range want {
		if absent, not := strings.CutPrefix(w, "!"); strings.Contains(said, absent) == not {
			t.Errorf("the output has %q: %t, want %t:\n%s", absent, not, !not, said)
		}
	}
	return stdout.String()
}
