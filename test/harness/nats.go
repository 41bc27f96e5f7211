package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	ownModule  = "github.com/cdc-relay/cdc-relay"
	natsModule = "github.com/nats-io/nats-server/v2"
)

// NATSServer is a nats-server with JetStream, a process of its own.
type NATSServer struct {
	server
	URL string // nats://host:port
}

// natsProgram builds the server from its module, which this module's go.mod names as a tool, once per machine and
// version. Tests of other modules call it, too.
var natsProgram = sync.OnceValues(func() (string, error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", ownModule).Output()
	if err != nil {
		return "", fmt.Errorf("ask for the directory of %s: %w", ownModule, err)
	}
	dir := strings.TrimSpace(string(root))
	list := exec.Command("go", "list", "-m", "-f", "{{.Version}}", natsModule)
	list.Dir = dir
	version, err := list.Output()
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
	build := exec.Command("go", "build", "-o", next, natsModule) //nolint:gosec // a place of our own
	build.Dir = dir
	if said, err := build.CombinedOutput(); err != nil {
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
	s := &NATSServer{server: server{name: "nats-server", patience: 30 * time.Second}}
	s.of(t, s.begin(t.Context(), func() error { return s.describe(settings) }))
	return s
}

// NATSCluster starts three servers that keep what a stream of three replicas has. Each advertises only itself, so that
// clients know the addresses that they are given.
func NATSCluster(t testing.TB, settings ...string) []*NATSServer {
	t.Helper()
	needsServers(t)
	const size = 3
	routes := make([]string, size)
	for i := range routes {
		addr, err := freeAddr()
		if err != nil {
			t.Fatal(err)
		}
		routes[i] = addr
	}
	servers := make([]*NATSServer, size)
	for i := range servers {
		s := &NATSServer{server: server{name: "nats-server", patience: 30 * time.Second}}
		mine := append([]string{
			fmt.Sprintf("server_name: n%d", i),
			fmt.Sprintf(`cluster: {name: cluster, listen: %q, no_advertise: true, routes: ["nats-route://%s"]}`, routes[i],
				strings.Join(routes, `", "nats-route://`)),
		}, settings...)
		s.of(t, s.begin(t.Context(), func() error { return s.describe(mine) }))
		servers[i] = s
	}
	return servers
}

func (s *NATSServer) describe(settings []string) (err error) {
	if s.command.Path, err = natsProgram(); err != nil {
		return err
	}
	s.URL = "nats://" + s.Addr
	config := filepath.Join(s.dir, "server.conf")
	s.command.Args = []string{"-c", config}
	lines := append([]string{
		"listen: " + s.Addr,
		fmt.Sprintf("jetstream: {store_dir: %q, max_memory_store: 256MB, max_file_store: 4GB}", filepath.Join(s.dir, "data")),
	}, settings...)
	if err := os.WriteFile(config, []byte(joinLines(lines)), 0o600); err != nil {
		return fmt.Errorf("write the configuration of nats-server: %w", err)
	}
	s.ready = func() error {
		line, err := s.firstLine("")
		if err == nil && !strings.Contains(line, `"jetstream":true`) {
			err = fmt.Errorf("it says %q", line)
		}
		return err
	}
	return nil
}

// Keep copies what the server has on its disk. When the server was killed, forget makes that all that it has: it is as
// if the power had gone, and nothing had been synced since.
func (s *NATSServer) Keep(t testing.TB) (forget func()) {
	t.Helper()
	data, kept := filepath.Join(s.dir, "data"), t.TempDir()
	s.Freeze()
	err := os.CopyFS(kept, os.DirFS(data))
	s.Thaw()
	if err != nil {
		t.Fatalf("copy what %s has: %v", s.Addr, err)
	}
	return func() {
		if err := errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(kept))); err != nil {
			t.Fatalf("take %s back: %v", s.Addr, err)
		}
	}
}
