package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/embedded/child"
)

const redisStartPatience = 30 * time.Second

// RedisServer is a redis-server with an append-only file, a process of its own.
type RedisServer struct {
	Addr string // host:port

	dir      string
	settings []string
	mu       sync.Mutex
	process  *child.Process // guarded by mu
}

// Redis starts a server for this test alone, with options as on its command line, such as --requirepass.
func Redis(t testing.TB, settings ...string) *RedisServer {
	t.Helper()
	needsServers(t)
	s, err := startRedis(t.Context(), settings)
	if err != nil {
		missing(t, "redis-server", err)
	}
	t.Cleanup(func() {
		s.Kill9()
		if err := os.RemoveAll(s.dir); err != nil {
			t.Errorf("remove the directory of redis-server: %v", err)
		}
	})
	return s
}

func startRedis(ctx context.Context, settings []string) (_ *RedisServer, err error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "cdc-relay-redis-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for redis-server: %w", err)
	}
	s := &RedisServer{Addr: addr, dir: dir, settings: settings}
	defer func() {
		if err != nil {
			s.Kill9()
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	return s, s.start(ctx)
}

func (s *RedisServer) start(ctx context.Context) error {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return fmt.Errorf("find redis-server: %w", err)
	}
	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return fmt.Errorf("read the address of redis-server: %w", err)
	}
	args := append([]string{
		"--bind", host, "--port", port, "--dir", s.dir, "--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
	}, s.settings...)
	process, err := child.Start(child.Config{Path: path, Args: args, Dir: s.dir, DeathSignal: syscall.SIGKILL})
	if err != nil {
		return fmt.Errorf("start redis-server: %w", err)
	}
	s.mu.Lock()
	s.process = process
	s.mu.Unlock()
	return awaitServer(ctx, process, "redis-server", redisStartPatience, func() error {
		conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		if _, err := conn.Write([]byte("PING\r\n")); err != nil {
			return err
		}
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err == nil && !strings.HasPrefix(line, "+PONG") && !strings.HasPrefix(line, "-NOAUTH") {
			err = fmt.Errorf("it says %q", line)
		}
		return err
	})
}

// Kill9 kills the server and waits for its end.
func (s *RedisServer) Kill9() {
	s.mu.Lock()
	process := s.process
	s.mu.Unlock()
	if process != nil {
		process.Kill()
	}
}

// Start starts the server again, on the same address and data, and waits until it answers.
func (s *RedisServer) Start(t testing.TB) {
	t.Helper()
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
}
