package harness

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// RedisServer is a redis-server with an append-only file, a process of its own.
type RedisServer struct {
	server
	cli []string // what redis-cli needs besides host and port
}

// Redis starts a server for this test alone, with options as on its command line, such as --requirepass.
func Redis(t testing.TB, settings ...string) *RedisServer {
	t.Helper()
	needsServers(t)
	s := &RedisServer{server: server{name: "redis-server", patience: 30 * time.Second}}
	s.of(t, s.begin(t.Context(), func() error { return s.describe(settings) }))
	return s
}

// SecuredRedis starts a server that speaks TLS only, by its own certificate, and wants one of the authority from
// clients. The files are read at each start.
func SecuredRedis(t testing.TB, own Certificate, clients *Authority, settings ...string) *RedisServer {
	t.Helper()
	needsServers(t)
	s := &RedisServer{server: server{name: "redis-server", patience: 30 * time.Second}}
	mine := clients.Issue(t, "redis-cli", time.Now().Add(time.Hour))
	s.cli = []string{"--tls", "--insecure", "--cert", mine.CertFile, "--key", mine.KeyFile}
	s.of(t, s.begin(t.Context(), func() error {
		_, port, err := net.SplitHostPort(s.Addr)
		if err != nil {
			return fmt.Errorf("read the address of redis-server: %w", err)
		}
		err = s.describe(append([]string{"--port", "0", "--tls-port", port, "--tls-cert-file", own.CertFile,
			"--tls-key-file", own.KeyFile, "--tls-ca-cert-file", clients.File}, settings...))
		s.ready = s.listens
		return err
	}))
	return s
}

// RedisSentinels starts three Sentinels that watch over the master under that name, with TCP addresses as they tell
// them. A server that is silent for a second is failed over as soon as two of them say so.
func RedisSentinels(t testing.TB, name string, master *RedisServer, settings ...string) (sentinels []*RedisServer) {
	t.Helper()
	needsServers(t)
	for range 3 {
		s := &RedisServer{server: server{name: "redis-sentinel", patience: 30 * time.Second}}
		s.of(t, s.begin(t.Context(), func() error { return s.describeSentinel(name, master, settings) }))
		sentinels = append(sentinels, s)
	}
	return sentinels
}

func (s *RedisServer) describeSentinel(name string, master *RedisServer, settings []string) error {
	if err := s.describe(nil); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(master.Addr)
	if err != nil {
		return fmt.Errorf("read the address of the master: %w", err)
	}
	_, mine, _ := net.SplitHostPort(s.Addr)
	config := filepath.Join(s.dir, "sentinel.conf") // it writes there what it learns
	lines := append([]string{
		"bind " + host, "port " + mine, "dir " + s.dir,
		fmt.Sprintf("sentinel monitor %s %s %s 2", name, host, port),
		fmt.Sprintf("sentinel down-after-milliseconds %s 1000", name),
		fmt.Sprintf("sentinel failover-timeout %s 6000", name),
	}, settings...)
	if err := os.WriteFile(config, []byte(joinLines(lines)), 0o600); err != nil {
		return fmt.Errorf("write the configuration of a Sentinel: %w", err)
	}
	s.command.Args = []string{config, "--sentinel"}
	return nil
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
