package main

import (
	"os"
	"path/filepath"
	"testing"
)

// cdc-relay has no server of its own: it hands the demo to another program, with the command line as it is, once that
// is known to be right. Breaks it catches: flags that get lost, an exit code of its own, a program that is missing and
// not explained. Seen to fail with the subcommand's name left out, and with a missing program told as a failure.
func TestDemoIsHandedToTheOtherProgram(t *testing.T) {
	t.Parallel()
	elsewhere := t.TempDir()
	script := "#!/bin/sh\necho \"got $*\"\nexit 7\n"
	if err := os.WriteFile(filepath.Join(elsewhere, "cdc-relay-demo"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	environ := []string{"PATH=" + elsewhere + ":" + os.Getenv("PATH")}
	cdcRelay(t, environ, "--log-level=debug", "demo", "--duration", "1s").
		want(t, 7, []string{"got --log-level=debug demo --duration 1s"}, nil)
	cdcRelay(t, []string{"PATH="}, "demo").want(t, exitUsage,
		nil, []string{"cdc-relay-demo is not installed", "make build", "make demo"})
	cdcRelay(t, []string{"PATH="}, "bench", "--demo").want(t, exitUsage, nil, []string{"cdc-relay-demo is not installed"})
}
