package main

import (
	"os"
	"testing"
)

// Break it catches: a command whose output is cut, by a full disk, and that ends with exit code 0, so that a script
// goes on with half of it. Seen to fail with text that is written and not looked after.
func TestCommandFailsWhoseOutputIsCut(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full on this machine")
	}
	defer func() { _ = full.Close() }()
	for _, args := range [][]string{{"version"}, {"version", "--json"}, {"completion", "bash"}} {
		cmd, _, errs := command(t.Context(), t, nil, args...)
		cmd.Stdout = full
		_ = cmd.Run()
		outcome{cmd.ProcessState.ExitCode(), "", errs.String()}.want(t, exitFailed, nil,
			[]string{"write the output", "no space left"})
	}
}
