package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/embedded/child"
)

const (
	rabbitProgram       = "/usr/lib/rabbitmq/bin/rabbitmq-server"
	rabbitStartPatience = 2 * time.Minute // Erlang on two busy cores
)

// RabbitServer is a rabbitmq-server, a process of its own, with the user guest.
type RabbitServer struct {
	Addr string // host:port of AMQP

	dir     string
	env     []string
	mu      sync.Mutex
	process *child.Process // guarded by mu
}

var sharedRabbit = sync.OnceValues(func() (*RabbitServer, error) {
	s, err := startRabbit(context.Background())
	if err == nil {
		atEnd(func() error {
			s.Kill9()
			return os.RemoveAll(s.dir)
		})
	}
	return s, err
})

// RabbitMQ is the test process's server, started at the first call. Tests share it: make exchanges by [Unique] names.
func RabbitMQ(t testing.TB) *RabbitServer {
	t.Helper()
	needsServers(t)
	s, err := sharedRabbit()
	if err != nil {
		missing(t, "rabbitmq-server", err)
	}
	return s
}

func startRabbit(ctx context.Context) (_ *RabbitServer, err error) {
	if _, err := os.Stat(rabbitProgram); err != nil {
		return nil, fmt.Errorf("find rabbitmq-server: %w", err)
	}
	var addrs [3]string // AMQP, Erlang's distribution, its port mapper
	for i := range addrs {
		if addrs[i], err = freeAddr(); err != nil {
			return nil, err
		}
	}
	port := func(i int) string {
		_, p, _ := net.SplitHostPort(addrs[i])
		return p
	}
	dir, err := os.MkdirTemp("", "cdc-relay-rabbitmq-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for rabbitmq-server: %w", err)
	}
	s := &RabbitServer{Addr: addrs[0], dir: dir}
	defer func() {
		if err != nil {
			s.Kill9()
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	plugins, conf := filepath.Join(dir, "enabled_plugins"), filepath.Join(dir, "rabbitmq.conf")
	lines := joinLines([]string{"listeners.tcp.default = " + s.Addr, "log.console = true", "log.file = false"})
	if err := errors.Join(os.WriteFile(plugins, []byte("[].\n"), 0o600),
		os.WriteFile(conf, []byte(lines), 0o600)); err != nil {
		return nil, fmt.Errorf("write the configuration of rabbitmq-server: %w", err)
	}
	s.env = append(os.Environ(),
		"HOME="+dir, "RABBITMQ_NODENAME=relay"+port(0)+"@localhost", "RABBITMQ_CONFIG_FILE="+conf,
		"RABBITMQ_ENABLED_PLUGINS_FILE="+plugins, "RABBITMQ_MNESIA_BASE="+filepath.Join(dir, "data"),
		"RABBITMQ_LOG_BASE="+filepath.Join(dir, "log"), "RABBITMQ_DIST_PORT="+port(1), "ERL_EPMD_PORT="+port(2),
		"ERL_EPMD_ADDRESS=127.0.0.1", "RABBITMQ_PID_FILE="+filepath.Join(dir, "pid"), "LANG=C.UTF-8",
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=+S 2:2 -kernel inet_dist_use_interface {127,0,0,1}",
		"RABBITMQ_CONF_ENV_FILE=/dev/null")
	return s, s.start(ctx)
}

func (s *RabbitServer) start(ctx context.Context) error {
	process, err := child.Start(child.Config{Path: rabbitProgram, Dir: s.dir, Env: s.env, DeathSignal: syscall.SIGKILL})
	if err != nil {
		return fmt.Errorf("start rabbitmq-server: %w", err)
	}
	s.mu.Lock()
	s.process = process
	s.mu.Unlock()
	return awaitServer(ctx, process, "rabbitmq-server", rabbitStartPatience, func() error {
		conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// Kill9 kills the server and waits for its end.
func (s *RabbitServer) Kill9() {
	s.mu.Lock()
	process := s.process
	s.mu.Unlock()
	if process != nil {
		process.Kill()
	}
}
