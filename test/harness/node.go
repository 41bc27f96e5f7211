package harness

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded/child"
)

// Script is a program in Node, with the packages of test/node, or in Python.
type Script struct {
	t       testing.TB
	config  child.Config
	process *child.Process
	mu      sync.Mutex
	lines   []string // guarded by mu
}

// NewScript prepares a program, a path below the module's folder, with arguments and more of the environment.
func NewScript(t testing.TB, program string, environ []string, args ...string) *Script {
	t.Helper()
	needsServers(t)
	path, modules := Program(t, "node", "nodejs"), NodeModules(t)
	return newScript(t, path, program, append([]string{"NODE_PATH=" + modules}, environ...), args)
}

// NewPython is NewScript for a program of Python that needs nothing but its own library.
func NewPython(t testing.TB, program string, args ...string) *Script {
	t.Helper()
	return newScript(t, Program(t, "python3", "python3"), program, nil, args)
}

func newScript(t testing.TB, path, program string, environ, args []string) *Script {
	return &Script{t: t, config: child.Config{
		Path: path, Dir: t.TempDir(), Args: append([]string{filepath.Join(moduleDir(), program)}, args...),
		Env: append(os.Environ(), environ...), DeathSignal: syscall.SIGKILL,
	}}
}

// NodeModules is the folder with the packages that test/node names.
func NodeModules(t testing.TB) string {
	t.Helper()
	modules, err := nodeModules(t, Program(t, "npm", "npm"))
	if err != nil {
		missing(t, "what test/node/package.json names", err)
	}
	return modules
}

// nodeModules brings the packages of test/node/package-lock.json into a folder of the cache, at the first call on a
// machine for these versions.
func nodeModules(t testing.TB, npm string) (dir string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a cache directory: %w", err)
	}
	cache = filepath.Join(cache, "cdc-relay")
	files := map[string][]byte{}
	digest := sha256.New()
	for _, name := range []string{"package.json", "package-lock.json"} {
		if files[name], err = os.ReadFile(filepath.Join(moduleDir(), "test", "node", name)); err != nil {
			return "", err
		}
		digest.Write(files[name])
	}
	dir = filepath.Join(cache, "node-"+hex.EncodeToString(digest.Sum(nil))[:12])
	modules := filepath.Join(dir, "node_modules")
	if _, err := os.Stat(modules); err == nil {
		return modules, nil
	}
	return modules, fill(cache, dir, func(aside string) (string, error) {
		fetched := filepath.Join(aside, "fetched")
		if err := os.Mkdir(fetched, 0o755); err != nil {
			return "", err
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(fetched, name), text, 0o644); err != nil {
				return "", err
			}
		}
		// Not "npm ci", which wants optional packages for other systems named too.
		command := exec.CommandContext(t.Context(), npm, "install", "--no-save", "--omit=optional", "--ignore-scripts",
			"--no-audit", "--no-fund", "--loglevel=error")
		command.Dir, command.WaitDelay = fetched, time.Second
		if output, err := command.CombinedOutput(); err != nil {
			return "", fmt.Errorf("run npm: %w: %.2000s", err, output)
		}
		return fetched, nil
	})
}

// Config is the program as a process that someone else starts.
func (n *Script) Config() child.Config { return n.config }

// Start starts the program; it ends with the test.
func (n *Script) Start() {
	n.t.Helper()
	read, write := io.Pipe()
	n.config.Log = write
	var err error
	if n.process, err = child.Start(n.config); err != nil {
		n.t.Fatal(err)
	}
	process := n.process
	done := make(chan struct{})
	go func() {
		defer close(done)
		in := bufio.NewScanner(read)
		in.Buffer(nil, 1<<20)
		for in.Scan() {
			n.mu.Lock()
			n.lines = append(n.lines, in.Text())
			n.mu.Unlock()
		}
	}()
	n.t.Cleanup(func() {
		process.Kill()
		_ = write.Close()
		<-done
	})
}

// Kill9 kills the program and waits for its end.
func (n *Script) Kill9() { n.process.Kill() }

// Lines returns its output so far, of both streams, over all starts.
func (n *Script) Lines() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lines[:len(n.lines):len(n.lines)]
}
