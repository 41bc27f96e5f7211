package harness

import (
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/embedded"
)

// DebeziumServerVersion is that of test/debeziumserver/pom.xml.
const DebeziumServerVersion = "3.0.0.Final"

// DebeziumServer is Debezium Server as a child process. It is started again when it ends by itself, as a supervisor
// would: it ends after an error of its sink.
type DebeziumServer struct {
	*jvm
	mu         sync.Mutex     // over jvm, too, while it is supervised
	wanted     bool           // guarded by mu: it is to run
	ends       int            // guarded by mu
	supervisor sync.WaitGroup // at most one
}

// NewDebeziumServer writes its configuration and, at the first call on a machine, fetches it with Maven, and a Java 21
// with pip; it starts nothing. The source is a connector's configuration; settings go over the server's defaults.
func NewDebeziumServer(t testing.TB, source, settings map[string]string) *DebeziumServer {
	t.Helper()
	needsServers(t)
	java, err := java21(t.Context())
	if err != nil {
		missing(t, "Java 21", err)
	}
	home, err := fromMaven(t.Context(), "debezium-server-"+DebeziumServerVersion, "debeziumserver", unpack(""))
	if err != nil {
		missing(t, "Debezium Server", err)
	}
	port, err := embedded.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	s := &DebeziumServer{jvm: newJVM(t, "Debezium Server", java)}
	t.Cleanup(s.Kill9)
	all := map[string]string{
		"quarkus.http.host": "127.0.0.1", "quarkus.http.port": strconv.Itoa(port), "quarkus.log.level": "WARN",
		"quarkus.log.console.json": "false", "quarkus.log.console.color": "false",
		`quarkus.log.category."io.debezium.connector.postgresql.TypeRegistry".level`: "ERROR", // it warns of each domain
		"debezium.source.offset.storage.file.filename":                               filepath.Join(s.dir, "offsets"),
	}
	for name, value := range source {
		if strings.HasPrefix(name, "transforms") {
			all["debezium."+name] = value
		} else {
			all["debezium.source."+name] = value
		}
	}
	maps.Copy(all, settings)
	config := filepath.Join(s.dir, "config")
	if err := os.Mkdir(config, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(config, "application.properties"), properties(all), 0o600); err != nil {
		t.Fatal(err)
	}
	server := filepath.Join(home, "debezium-server")
	// what its own run.sh does
	s.args = []string{"-cp", filepath.Join(server, "debezium-server-dist-"+DebeziumServerVersion+"-runner.jar") + ":" +
		filepath.Join(server, "lib", "*"), "io.debezium.server.Main"}
	return s
}

// Start starts it, again if it was killed, and does not wait.
func (s *DebeziumServer) Start(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jvm.Start(t)
	s.wanted = true
	s.supervisor.Go(s.supervise)
}

func (s *DebeziumServer) supervise() {
	for {
		s.mu.Lock()
		process := s.process
		s.mu.Unlock()
		<-process.Done()
		s.mu.Lock()
		if s.wanted {
			s.ends++
			s.wanted = s.start() == nil
		}
		wanted := s.wanted
		s.mu.Unlock()
		if !wanted {
			return
		}
	}
}

// Kill9 kills it and waits for its end. It can be started again, from the offsets that it has noted.
func (s *DebeziumServer) Kill9() {
	s.mu.Lock()
	s.wanted = false
	s.jvm.Kill9()
	s.mu.Unlock()
	s.supervisor.Wait()
}

// PID is its process id, 0 when it does not run.
func (s *DebeziumServer) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jvm.PID()
}

// Ends is how often it has ended by itself, and was started again.
func (s *DebeziumServer) Ends() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ends
}
