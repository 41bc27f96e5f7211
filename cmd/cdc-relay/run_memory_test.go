package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// residentFile is how much of a process's memory are pages of files, in kB, by status of proc(5).
func residentFile(t *testing.T, pid int) (kB int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := bytes.Cut(status, []byte("RssFile:"))
	if _, err := fmt.Sscan(string(rest), &kB); err != nil || !found {
		t.Fatalf("no RssFile in %s", status)
	}
	return kB
}

// What a start touched of the program file makes a third of an idle relay's memory. Breaks it catches: a start that
// keeps it, and a hook that is not called. Seen to fail with WithBegun left out of run: the process stays at its size.
func TestAStartGivesThePagesOfTheProgramFileBack(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux keeps the pages, and says so")
	}
	t.Parallel()
	s := newServices(t, orderTopic)
	cdcRelay(t, s.environ, "init").want(t, exitDone, nil, nil)
	most := 0
	r := startRelay(t, s.environ)
	harness.Eventually(t, 30*time.Second, "pages given back", func(context.Context) string {
		now := residentFile(t, r.cmd.Process.Pid)
		most = max(most, now)
		if now > most*4/5 {
			return fmt.Sprintf("%d kB of files are in memory, and were at most %d", now, most)
		}
		return ""
	})
	if code := r.stop(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("got exit code %d after SIGTERM, want 0; log:\n%s", code, r.log)
	}
}

// Break it catches: garbage of the packages' initialisation collected before a start does anything. The other command
// shows that there is some. Seen to fail with package early left out of the program.
func TestAStartCollectsNothingBeforeItsFirstStep(t *testing.T) {
	t.Parallel()
	collects := func(command string) bool {
		missing := filepath.Join(t.TempDir(), "missing.yaml")
		got := cdcRelay(t, []string{"GODEBUG=gctrace=1"}, command, "--config", missing)
		if got.code == exitDone {
			t.Fatalf("%s without its configuration: got success", command)
		}
		return strings.Contains("\n"+got.errors, "\ngc 1 @")
	}
	if !collects("check") {
		t.Error("check collects nothing: either the trace does not work, or package early is of no use any more")
	}
	if collects("run") {
		t.Error("run collected garbage before it had read its configuration")
	}
}
