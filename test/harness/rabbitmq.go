package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/embedded/child"
)

const rabbitProgram = "/usr/lib/rabbitmq/bin/rabbitmq-server"

// RabbitServer is a rabbitmq-server, a process of its own, with the user guest and the plugin for streams.
type RabbitServer struct {
	server
	StreamAddr string // host:port of the stream protocol
	AdminAddr  string // host:port of the API for rabbitmqadmin; a server that speaks TLS has one

	plugins, lines []string // of its configuration; nil: ports without TLS

	// Of a cluster; 0, "" and nil without one.
	port    int      // of Erlang's distribution
	mapper  string   // the port of the node's own mapper
	cluster []string // lines of the configuration
}

var sharedRabbit = sync.OnceValues(func() (*RabbitServer, error) {
	s := &RabbitServer{server: server{name: "rabbitmq-server", patience: 2 * time.Minute}} // Erlang on two busy cores
	err := s.begin(context.Background(), s.describe)
	if err == nil {
		AtEnd(s.end)
	}
	return s, err
})

// sharedMapper is Erlang's port mapper, which knows the nodes of this test process. One that is not there when a node
// starts is started by it, in the background, and outlives both.
var sharedMapper = sync.OnceValues(func() (*server, error) {
	s := &server{name: "epmd", patience: time.Minute}
	err := s.begin(context.Background(), func() error {
		s.command = child.Config{Path: "/usr/bin/epmd", Args: []string{
			"-port", strings.TrimPrefix(s.Addr, "127.0.0.1:"), "-address", "127.0.0.1",
		}}
		s.ready = s.listens
		return nil
	})
	if err == nil {
		AtEnd(s.end)
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

// SecuredRabbitMQ starts a server that speaks TLS only, by its own certificate, and wants one of the authority from
// clients: its common name is the user of EXTERNAL. The server's own files are read at each handshake.
func SecuredRabbitMQ(t testing.TB, own Certificate, clients *Authority) *RabbitServer {
	t.Helper()
	needsServers(t)
	s := &RabbitServer{server: server{name: "rabbitmq-server", patience: 2 * time.Minute}}
	s.plugins = []string{"rabbitmq_stream", "rabbitmq_auth_mechanism_ssl", "rabbitmq_management"}
	s.lines = []string{
		"listeners.tcp = none", "stream.listeners.tcp = none",
		"ssl_options.certfile = " + own.CertFile, "ssl_options.keyfile = " + own.KeyFile,
		"ssl_options.cacertfile = " + clients.File, "ssl_options.verify = verify_peer",
		"ssl_options.fail_if_no_peer_cert = true", "ssl_cert_login_from = common_name",
		"auth_mechanisms.1 = PLAIN", "auth_mechanisms.2 = EXTERNAL",
	}
	s.of(t, s.begin(t.Context(), s.describe))
	return s
}

// Ctl runs rabbitmqctl on the server.
func (s *RabbitServer) Ctl(t testing.TB, words ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(rabbitProgram), "rabbitmqctl"), words...)
	command.Env = s.command.Env
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("rabbitmqctl %s: %v: %s", strings.Join(words, " "), err, out)
	}
}

// Admin runs rabbitmqadmin, which comes with the server, by its API.
func (s *RabbitServer) Admin(t testing.TB, words ...string) {
	t.Helper()
	host, port, _ := net.SplitHostPort(s.AdminAddr)
	words = append([]string{"--host=" + host, "--port=" + port}, words...)
	if out, err := exec.CommandContext(t.Context(), "rabbitmqadmin", words...).CombinedOutput(); err != nil {
		t.Fatalf("rabbitmqadmin %s: %v: %s", strings.Join(words, " "), err, out)
	}
}

func (s *RabbitServer) describe() error {
	if _, err := os.Stat(rabbitProgram); err != nil {
		return fmt.Errorf("find rabbitmq-server: %w", err)
	}
	err := s.distribute()
	if err != nil {
		return err
	}
	if s.StreamAddr, err = freeAddr(); err != nil {
		return err
	}
	plugins, conf := filepath.Join(s.dir, "enabled_plugins"), filepath.Join(s.dir, "rabbitmq.conf")
	enabled, lines := []string{"rabbitmq_stream"}, []string{
		"listeners.tcp.default = " + s.Addr, "stream.listeners.tcp.1 = " + s.StreamAddr,
	}
	if s.lines != nil {
		if s.AdminAddr, err = freeAddr(); err != nil {
			return err
		}
		host, port, _ := net.SplitHostPort(s.AdminAddr)
		enabled, s.lines = s.plugins, append(s.lines, "management.tcp.ip = "+host, "management.tcp.port = "+port)
		lines = append([]string{"listeners.ssl.1 = " + s.Addr, "stream.listeners.ssl.1 = " + s.StreamAddr}, s.lines...)
	}
	if s.cluster != nil { // nodes send clients to the leader of a stream
		host, port, _ := net.SplitHostPort(s.StreamAddr)
		lines = append(lines, "stream.advertised_host = "+host, "stream.advertised_port = "+port)
	}
	text := joinLines(append(append(lines, s.cluster...), "log.console = true", "log.file = false"))
	if err := errors.Join(os.WriteFile(plugins, []byte("["+strings.Join(enabled, ",")+"].\n"), 0o600),
		os.WriteFile(conf, []byte(text), 0o600)); err != nil {
		return fmt.Errorf("write the configuration of rabbitmq-server: %w", err)
	}
	s.command.Path = rabbitProgram
	s.command.Env = append(os.Environ(),
		"HOME="+s.dir, fmt.Sprintf("RABBITMQ_NODENAME=relay%d@localhost", s.port), "RABBITMQ_CONFIG_FILE="+conf,
		"RABBITMQ_ENABLED_PLUGINS_FILE="+plugins, "RABBITMQ_MNESIA_BASE="+filepath.Join(s.dir, "data"),
		"RABBITMQ_LOG_BASE="+filepath.Join(s.dir, "log"), fmt.Sprintf("RABBITMQ_DIST_PORT=%d", s.port),
		"ERL_EPMD_PORT="+s.mapper,
		"ERL_EPMD_ADDRESS=127.0.0.1", "RABBITMQ_PID_FILE="+filepath.Join(s.dir, "pid"), "LANG=C.UTF-8",
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=+S 2:2 -ssl bypass_pem_cache true "+
			"-kernel inet_dist_use_interface {127,0,0,1}",
		"RABBITMQ_CONF_ENV_FILE=/dev/null")
	s.ready = func() error {
		for _, addr := range []string{s.Addr, s.StreamAddr} {
			conn, err := net.DialTimeout("tcp", addr, time.Second)
			if err != nil {
				return err
			}
			_ = conn.Close()
		}
		return nil
	}
	return nil
}

// distribute chooses where the node listens for others and who maps its name, unless a cluster has chosen.
func (s *RabbitServer) distribute() error {
	if s.mapper != "" {
		return s.cookie()
	}
	mapper, err := sharedMapper()
	if err != nil {
		return err
	}
	s.mapper = strings.TrimPrefix(mapper.Addr, "127.0.0.1:")
	s.port, err = embedded.FreePort()
	return err
}
