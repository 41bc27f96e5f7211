package brokers

import (
	"bytes"
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// fiveMinutes is a page docs/start-<name>.md that a test follows.
type fiveMinutes struct {
	name string
	// begin starts the broker, and says what stands in the page for its address.
	begin func(t *testing.T) (addresses map[string]string)
	said  string // what the consumer prints; empty: the page's last query counts its effect
}

var fivePages = []fiveMinutes{
	{name: "nats", begin: func(t *testing.T) map[string]string {
		return map[string]string{"nats://localhost:4222": harness.NATS(t).URL}
	}},
	{name: "rabbitmq", begin: func(t *testing.T) map[string]string {
		return map[string]string{"localhost:5672": harness.RabbitMQ(t).Addr}
	}},
	{name: "go", begin: func(t *testing.T) map[string]string {
		return map[string]string{"localhost:9092": harness.Kafka(t).Addrs[0]}
	}},
	{name: "bullmq", said: "order 42: ada pays 99", begin: func(t *testing.T) map[string]string {
		return map[string]string{"redis://localhost:6379/0": "redis://" + harness.Redis(t).Addr + "/0"}
	}},
}

var block = regexp.MustCompile("(?s)```[a-z]+\n(?:#|--|//) ([a-z.]+)\n(.*?)```")

// Each page, block by block, with other addresses. Breaks it catches: a key, command, statement or program of a page
// that does not work.
func TestThePagesOfFiveMinutesWork(t *testing.T) {
	harness.Full(t)
	if harness.Count(t, "pages of five minutes") == 0 {
		t.Skip("at night: it compiles programs, and npm installs")
	}
	for _, p := range fivePages {
		t.Run(p.name, p.follow)
	}
}

func (p fiveMinutes) follow(t *testing.T) {
	page, err := os.ReadFile("../../docs/start-" + p.name + ".md")
	if err != nil {
		t.Fatal(err)
	}
	pg := harness.Postgres(t)
	text := string(page)
	addresses := p.begin(t)
	addresses["postgres://postgres@localhost:5432/shop"] = pg.URL
	for from, to := range addresses {
		text = strings.ReplaceAll(text, from, to)
	}
	blocks := map[string]string{}
	for _, b := range block.FindAllStringSubmatch(text, -1) {
		blocks[b[1]] = b[2]
	}
	var tree map[string]any
	if err := yaml.Unmarshal([]byte(blocks["relay.yaml"]), &tree); err != nil {
		t.Fatal(err)
	}
	own := harness.Settings{}
	flattened(own, "", tree)
	settings := harness.NewSettings(t, pg, nil)
	delete(settings, "kafka.brokers")
	delete(settings, "message.topic")
	maps.Copy(settings, own)
	relay := harness.NewRelay(t, settings)
	for line := range strings.Lines(blocks["init"]) {
		args := strings.Fields(strings.TrimSuffix(strings.TrimSpace(line), "--config relay.yaml"))[1:]
		if args[0] == "run" {
			continue
		}
		if code, out, said := relay.Run(t, args...); code != 0 {
			t.Fatalf("%s: exit code %d: %s%s", line, code, out, said)
		}
	}
	relay.Start(t)
	relay.WaitReady(t, time.Minute)
	pg.Exec(t, blocks["event"])
	published(t, pg, 1)
	p.consume(t, pg, blocks)
}

// consume runs the page's consumer until it has handled the event.
func (p fiveMinutes) consume(t *testing.T, pg *harness.PG, blocks map[string]string) {
	t.Helper()
	script, dir := blocks["consume"], "../.."
	if worker := blocks["worker.ts"]; worker != "" {
		dir = t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "worker.ts"), []byte(worker), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	said := &shared{}
	run := exec.CommandContext(t.Context(), "sh", "-ec", script)
	run.Dir, run.Stdout, run.Stderr = dir, said, said
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	run.Cancel = func() error { return syscall.Kill(-run.Process.Pid, syscall.SIGKILL) }
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-run.Process.Pid, syscall.SIGTERM)
		_ = run.Wait() // ended by a signal
	}()
	harness.Eventually(t, 2*time.Minute, "the event is handled", func(ctx context.Context) string {
		if p.said != "" {
			if strings.Contains(said.String(), p.said) {
				return ""
			}
			return "it said: " + said.String()
		}
		got, err := pg.TryQuery(ctx, "SELECT string_agg(customer || ' ' || orders, ',') FROM orders_of_customer")
		if err != nil || got != "ada 1" {
			return "got " + got + "; it said: " + said.String()
		}
		return ""
	})
	t.Logf("the consumer said: %.2000s", said.String())
	if look := blocks["look"]; look != "" {
		pg.Exec(t, look)
	}
}

// flattened are the keys of a tree, by their paths.
func flattened(into harness.Settings, path string, tree map[string]any) {
	for key, value := range tree {
		if inner, is := value.(map[string]any); is && key != "consumers" {
			flattened(into, path+key+".", inner)
			continue
		}
		into[path+key] = value
	}
}

// shared is a buffer that a process writes and the test reads.
type shared struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *shared) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(text)
}

func (s *shared) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
