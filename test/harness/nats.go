package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/embedded/child"
)

const (
	natsModule        = "github.com/nats-io/nats-server/v2"
	natsStartPatience = 30 * time.Second
)

// NATSServer is a nats-server with JetStream, a process of its own.
type NATSServer struct {
	URL  string // nats://host:port
	Addr string // host:port

	dir     string
	mu      sync.Mutex
	process *child.Process // guarded by mu
}

// natsProgram builds the server from its module, which go.mod names as a tool, once per machine and version.
var natsProgram = sync.OnceValues(func() (string, error) {
	version, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", natsModule).Output()
	if err != nil {
		return "", fmt.Errorf("ask for the version of %s: %w", natsModule, err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place for programs: %w", err)
	}
	path := filepath.Join(cache, "cdc-relay", "nats-server-"+strings.TrimSpace(string(version)))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	next := fmt.Sprintf("%s.%d", path, os.Getpid())
	if said, err := exec.Command("go", "build", "-o", next, natsModule).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", natsModule, err, said)
	}
	if err := os.Rename(next, path); err != nil {
		return "", fmt.Errorf("keep the built nats-server: %w", err)
	}
	return path, nil
})

// NATS starts a server for this test alone, with lines added to its configuration.
func NATS(t testing.TB, settings ...string) *NATSServer {
	t.Helper()
	needsServers(t)
	s, err := startNATS(t.Context(), settings)
	if err != nil {
		missing(t, "nats-server", err)
	}
	t.Cleanup(func() {
		s.Kill9()
		if err := os.RemoveAll(s.dir); err != nil {
			t.Errorf("remove the directory of nats-server: %v", err)
		}
	})
	return s
}

func startNATS(ctx context.Context, settings []string) (_ *NATSServer, err error) {
	if _, err := natsProgram(); err != nil {
		return nil, err
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "cdc-relay-nats-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for nats-server: %w", err)
	}
	s := &NATSServer{URL: "nats://" + addr, Addr: addr, dir: dir}
	defer func() {
		if err != nil {
			s.Kill9()
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	lines := append([]string{
		"listen: " + addr,
		fmt.Sprintf("jetstream: {store_dir: %q, max_memory_store: 256MB, max_file_store: 4GB}", filepath.Join(dir, "data")),
	}, settings...)
	if err := os.WriteFile(filepath.Join(dir, "server.conf"), []byte(joinLines(lines)), 0o600); err != nil {
		return nil, fmt.Errorf("write the configuration of nats-server: %w", err)
	}
	return s, s.start(ctx)
}

func (s *NATSServer) start(ctx context.Context) error {
	path, err := natsProgram()
	if err != nil {
		return err
	}
	process, err := child.Start(child.Config{
		Path: path, Args: []string{"-c", filepath.Join(s.dir, "server.conf")}, Dir: s.dir, DeathSignal: syscall.SIGKILL,
	})
	if err != nil {
		return fmt.Errorf("start nats-server: %w", err)
	}
	s.mu.Lock()
	s.process = process
	s.mu.Unlock()
	return awaitServer(ctx, process, "nats-server", natsStartPatience, func() error {
		conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err == nil && !strings.Contains(line, `"jetstream":true`) {
			err = fmt.Errorf("it says %q", line)
		}
		return err
	})
}

// awaitServer waits until ready says nil.
func awaitServer(ctx context.Context, p *child.Process, name string, patience time.Duration, ready func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-p.Done():
			return fmt.Errorf("%s ended with code %d: %s", name, p.ExitCode(), p.LastWords())
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w: %w; its log ends: %s", name, ctx.Err(), err, p.LastWords())
		case <-poll.C:
		}
	}
}

// Kill9 kills the server and waits for its end.
func (s *NATSServer) Kill9() {
	s.mu.Lock()
	process := s.process
	s.mu.Unlock()
	if process != nil {
		process.Kill()
	}
}

// Start starts the server again, on the same address and data, and waits until it answers.
func (s *NATSServer) Start(t testing.TB) {
	t.Helper()
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
}
