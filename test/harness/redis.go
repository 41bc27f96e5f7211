package harness

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// RedisServer is a redis-server with an append-only file, a process of its own.
type RedisServer struct{ server }

// Redis starts a server for this test alone, with options as on its command line, such as --requirepass.
func Redis(t testing.TB, settings ...string) *RedisServer {
	t.Helper()
	needsServers(t)
	s := &RedisServer{server{name: "redis-server", patience: 30 * time.Second}}
	s.of(t, s.begin(t.Context(), func() error { return s.describe(settings) }))
	return s
}

func (s *RedisServer) describe(settings []string) (err error) {
	if s.command.Path, err = exec.LookPath("redis-server"); err != nil {
		return fmt.Errorf("find redis-server: %w", err)
	}
	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return fmt.Errorf("read the address of redis-server: %w", err)
	}
	s.command.Args = append([]string{
		"--bind", host, "--port", port, "--dir", s.dir, "--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
	}, settings...)
	s.ready = func() error {
		line, err := s.firstLine("PING\r\n")
		if err == nil && !strings.HasPrefix(line, "+PONG") && !strings.HasPrefix(line, "-NOAUTH") {
			err = fmt.Errorf("it says %q", line)
		}
		return err
	}
	return nil
}
