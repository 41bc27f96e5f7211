package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/cdc-relay/cdc-relay/test/embedded/child"
)

const relayReadyPatience = 30 * time.Second

// Settings is a configuration of the relay by dotted keys: "postgres.url".
type Settings map[string]any

// NewSettings is a configuration that joins a database and a cluster, with a slot, a publication, topics and an HTTP
// address that no one else uses.
func NewSettings(t testing.TB, pg *PG, brokers []string) Settings {
	t.Helper()
	addr, err := freeAddr()
	if err != nil {
		t.Fatal(err)
	}
	name := Unique(t, "relay")
	return Settings{
		"postgres.url":           pg.URL,
		"postgres.slot":          name,
		"postgres.publication":   name,
		"message.topic":          name + ".{aggregate_type}",
		"kafka.brokers":          brokers,
		"http.listen":            addr,
		"outbox.columns.headers": "headers",
	}
}

// With is a copy with some keys set otherwise; pairs of key and value.
func (s Settings) With(pairs ...any) Settings {
	c := maps.Clone(s)
	for n := 0; n+1 < len(pairs); n += 2 {
		c[pairs[n].(string)] = pairs[n+1]
	}
	return c
}

// Slot is the name of the slot.
func (s Settings) Slot() string { return s["postgres.slot"].(string) }

// Topic is the topic of an aggregate type, by the template that NewSettings makes.
func (s Settings) Topic(aggregateType string) string {
	return strings.ReplaceAll(s["message.topic"].(string), "{aggregate_type}", aggregateType)
}

// YAML is the configuration file.
func (s Settings) YAML() ([]byte, error) {
	tree := map[string]any{}
	for key, value := range s {
		at := tree
		path := strings.Split(key, ".")
		for _, name := range path[:len(path)-1] {
			if at[name] == nil {
				at[name] = map[string]any{}
			}
			at = at[name].(map[string]any)
		}
		at[path[len(path)-1]] = value
	}
	text, err := yaml.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	return text, nil
}

// Relay is the relay's binary with one configuration, as a child process that can be started again and again.
type Relay struct {
	Settings Settings
	URL      string // of its HTTP listener, without a slash at the end
	Config   string // path of its configuration file

	dir    string
	binary string
	runs   []string // the command line of Start

	mu      sync.Mutex
	process *child.Process // the present or last one; guarded by mu
}

// NewRelay writes the configuration and builds the binary once per test process; it starts nothing. At the test's end
// the relay is killed; if the test failed, the end of its log is shown. A data race in it fails the test.
func NewRelay(t testing.TB, s Settings) *Relay {
	t.Helper()
	binary, err := relayBinary()
	if err != nil {
		t.Fatalf("build the relay: %v", err)
	}
	return NewRelayOf(t, s, binary)
}

// NewRelayOf is NewRelay with another binary.
func NewRelayOf(t testing.TB, s Settings, binary string) *Relay {
	t.Helper()
	text, err := s.YAML()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "cdc-relay-test-")
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{Settings: s, URL: fmt.Sprintf("http://%v", s["http.listen"]), dir: dir,
		Config: filepath.Join(dir, "relay.yaml"), binary: binary}
	r.runs = []string{"run", "--config", r.Config}
	if err := os.WriteFile(r.Config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.cleanUp(t) })
	return r
}

// StartRelay makes the tables, starts the relay and waits until it is ready.
func StartRelay(t testing.TB, s Settings) *Relay {
	t.Helper()
	return NewRelay(t, s).Begin(t)
}

// Begin makes the tables, starts the relay and waits until it is ready.
func (r *Relay) Begin(t testing.TB) *Relay {
	t.Helper()
	r.Init(t)
	r.Start(t)
	r.WaitReady(t, relayReadyPatience)
	return r
}

func (r *Relay) cleanUp(t testing.TB) {
	r.Kill9()
	log := r.Log(t)
	if at := strings.Index(log, "WARNING: DATA RACE"); at >= 0 {
		t.Errorf("the relay has a data race:\n%.4000s", log[at:])
	}
	if t.Failed() && log != "" {
		const most = 6000
		t.Logf("the relay's log ends:\n%s", log[max(0, len(log)-most):])
	}
	if os.Getenv("CDC_RELAY_TEST_KEEP") != "" {
		t.Logf("kept: %s", r.dir)
		return
	}
	if err := os.RemoveAll(r.dir); err != nil {
		t.Errorf("remove the relay's directory: %v", err)
	}
}

// relayBinary builds the relay, with the race detector if CDC_RELAY_TEST_RACE=1 says so. Figures of memory and speed
// mean something without it only.
var relayBinary = sync.OnceValues(func() (string, error) {
	if os.Getenv("CDC_RELAY_TEST_RACE") == "1" {
		return buildRelay(shippedTags, "-race")
	}
	return buildRelay(shippedTags, "-ldflags=-s -w")
})

// shippedTags are the build tags of the program that is shipped; see Makefile.
const shippedTags = "grpcnotrace"

func buildRelay(tags string, flags ...string) (string, error) {
	return build(".", "./cmd/cdc-relay", slices.Concat([]string{"-tags", tags}, flags)...)
}

// BuildRelay builds the relay with more build tags, for comparisons.
func BuildRelay(t testing.TB, tags string) (binary string) {
	t.Helper()
	binary, err := buildRelay(shippedTags + "," + tags)
	if err != nil {
		t.Fatalf("build the relay with the tags %s: %v", tags, err)
	}
	return binary
}

// Init runs `cdc-relay init`, which may be of thousands of tables.
func (r *Relay) Init(t testing.TB) {
	t.Helper()
	state, stdout, stderr := r.run(t, 10*time.Minute, []string{"init", "--timeout", "10m"}, nil)
	if code := state.ExitCode(); code != 0 {
		t.Fatalf("init: exit code %d, want 0; it said:\n%s%s", code, stdout, stderr)
	}
}

// Start starts `cdc-relay run` and does not wait. Its log goes on in the same file.
func (r *Relay) Start(t testing.TB) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process != nil && !r.process.Ended() {
		t.Fatal("start the relay: it is running")
	}
	log, err := os.OpenFile(r.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	r.process, err = child.Start(child.Config{
		Path: r.binary, Args: r.runs, Dir: r.dir, Env: relayEnviron(), Log: log,
		DeathSignal: syscall.SIGKILL,
	})
	if err != nil {
		t.Fatalf("start the relay: %v", err)
	}
	process := r.process
	go func() {
		<-process.Done()
		_ = log.Close()
	}()
}

// WaitReady waits until /readyz says yes, and fails at once when the relay ends.
func (r *Relay) WaitReady(t testing.TB, within time.Duration) {
	t.Helper()
	process := r.current()
	Eventually(t, within, "the relay is ready", func(ctx context.Context) string {
		if process.Ended() {
			t.Fatalf("the relay ended with code %d instead of getting ready: %s", process.ExitCode(), process.LastWords())
		}
		code, body, err := r.get(ctx, "/readyz")
		switch {
		case err != nil:
			return err.Error()
		case code != http.StatusOK:
			var why struct{ Reasons json.RawMessage }
			_ = json.Unmarshal([]byte(body), &why)
			return fmt.Sprintf("/readyz says %d: %.500s; all of it: %.500s", code, why.Reasons, body)
		}
		return ""
	})
}

func (r *Relay) current() *child.Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.process
}

// PID is its process id, 0 when it does not run.
func (r *Relay) PID() int {
	if process := r.current(); process != nil && !process.Ended() {
		return process.PID()
	}
	return 0
}

// Signal sends it a signal.
func (r *Relay) Signal(signal syscall.Signal) { r.current().Signal(signal) }

// Stop sends SIGTERM and waits for its end; the exit code must be 0. One that has just been started is waited for: a
// signal that comes before the process listens to signals ends it like any other.
func (r *Relay) Stop(t testing.TB) {
	t.Helper()
	process := r.current()
	Eventually(t, time.Minute, "a relay that is to stop listens to signals", func(ctx context.Context) string {
		if process.Ended() {
			return ""
		}
		if _, _, err := r.get(ctx, "/livez"); err != nil {
			return err.Error()
		}
		return ""
	})
	r.Signal(syscall.SIGTERM)
	if code := r.Wait(t, time.Minute); code != 0 {
		t.Fatalf("exit code after SIGTERM: got %d, want 0", code)
	}
}

// Wait waits until it ends by itself and returns the exit code, -1 if a signal ended it.
func (r *Relay) Wait(t testing.TB, within time.Duration) int {
	t.Helper()
	process := r.current()
	select {
	case <-process.Done():
		return process.ExitCode()
	case <-time.After(within):
		t.Fatalf("the relay did not end within %v", within)
		return 0
	}
}

// Kill9 kills it and waits for its end.
func (r *Relay) Kill9() {
	if process := r.current(); process != nil {
		process.Kill()
	}
}

// Freeze stops it with SIGSTOP.
func (r *Relay) Freeze() { r.current().Freeze() }

// Thaw lets it go on.
func (r *Relay) Thaw() { r.current().Thaw() }

func (r *Relay) logFile() string { return filepath.Join(r.dir, "stderr.log") }

// Log is everything that it wrote to stdout and stderr in all its lives.
func (r *Relay) Log(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(r.logFile())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text)
}

// Get asks its HTTP listener.
func (r *Relay) Get(t testing.TB, path string) (code int, body string) {
	t.Helper()
	code, body, err := r.get(t.Context(), path)
	if err != nil {
		t.Fatalf("get %s: %v", path, err)
	}
	return code, body
}

// Ask is Get for a relay that may not answer.
func (r *Relay) Ask(ctx context.Context, path string) (code int, body string, err error) {
	return r.get(ctx, path)
}

func (r *Relay) get(ctx context.Context, path string) (int, string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL+path, nil)
	if err != nil {
		return 0, "", fmt.Errorf("make a request: %w", err)
	}
	request.Close = true // no idle connection may outlive the test
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", fmt.Errorf("ask the relay: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, "", fmt.Errorf("read the relay's answer: %w", err)
	}
	return response.StatusCode, string(body), nil
}

// PeakRSS is the most memory that the running relay has held, in bytes.
func (r *Relay) PeakRSS(t testing.TB) int64 {
	t.Helper()
	return PeakRSS(t, r.PID())
}
