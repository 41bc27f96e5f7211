package test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Any test may use these besides what its folder may.
var (
	testRooms = []string{"test/embedded", "test/embedded/child", "test/harness", "test/cutproxy",
		"internal/doctor/verify", "internal/outbox"}
	testExternal = []string{
		"github.com/chromedp", "github.com/cloudevents/sdk-go/v2", "github.com/goccy/go-yaml", "github.com/google/go-cmp",
		"github.com/jackc/pglogrepl", "github.com/jackc/pgx/v5", "github.com/prometheus/client_golang",
		"github.com/prometheus/client_model", "github.com/rs/zerolog", "github.com/santhosh-tekuri/jsonschema/v6",
		"github.com/segmentio/kafka-go", "github.com/twmb/franz-go", "go.uber.org/goleak", "google.golang.org/protobuf",
		"pgregory.net/rapid",
	}
)

// TestArrowsPointDown reads the imports of every Go file, for all systems and build tags. Breaks it catches: an import
// against the design (seen to fail with store importing sink, and with a folder that is not in the table).
func TestArrowsPointDown(t *testing.T) {
	root := ".."
	found := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata") {
			return filepath.SkipDir
		}
		if entry.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		path, err = filepath.Rel(root, path)
		if err != nil {
			return err
		}
		folder := filepath.ToSlash(filepath.Dir(path))
		if path == "deps.go" {
			return nil // only pins versions until their users have landed
		}
		rules, known := house[folder]
		if !known {
			t.Errorf("%s: the folder is not in the house", path)
			return nil
		}
		found[folder] = true
		checkImports(t, filepath.Join(root, path), folder, rules)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range slices.Sorted(maps.Keys(house)) {
		if !found[folder] {
			t.Errorf("%s is in the table of the house, but has no Go file", folder)
		}
	}
}

// Production links nothing that only a demo or a test needs. Break it catches: a command that imports a server, by
// however many hands (seen to fail with the demo's package imported by a command).
func TestArrowsOfTheShippedBinaryLeadToNoServer(t *testing.T) {
	list := exec.Command("go", "list", "-deps", "./cmd/cdc-relay")
	list.Dir = ".."
	packages, err := list.Output()
	if err != nil {
		t.Fatalf("list what the binary is made of: %v", err)
	}
	found := 0
	for path := range strings.Lines(string(packages)) {
		found++
		for _, server := range []string{
			module + "/embedded", module + "/test", "github.com/twmb/franz-go", "github.com/fergusstrange/embedded-postgres",
			"github.com/lib/pq", "github.com/nats-io/nats-server",
		} {
			if path = strings.TrimSpace(path); path == server || strings.HasPrefix(path, server+"/") {
				t.Errorf("cmd/cdc-relay links %s", path)
			}
		}
	}
	if found < 100 {
		t.Errorf("packages that the binary is made of: got %d, want all", found)
	}
}

// A Go program that embeds the relay links one broker's client: that of the driver it imports. Seen to fail with the
// drivers of the binary imported by relay.
func TestEmbeddedRelayLinksOnlyItsBroker(t *testing.T) {
	harness.Full(t)
	for what, c := range map[string]struct {
		most     int // external packages
		packages []string
	}{
		"a relay without a driver": {120, []string{"./relay"}},
		"a relay for Kafka":        {200, []string{"./relay", "./sink/kafka"}},
	} {
		list := exec.Command("go", append([]string{"list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}"},
			c.packages...)...)
		list.Dir = ".."
		output, err := list.Output()
		if err != nil {
			t.Fatalf("list what %s links: %v", what, err)
		}
		external := 0
		for path := range strings.FieldsSeq(string(output)) {
			if path == module || strings.HasPrefix(path, module+"/") {
				continue
			}
			external++
			for _, owner := range []string{"aws", "nats-io", "redis", "rabbitmq"} {
				if strings.HasPrefix(path, "github.com/"+owner+"/") {
					t.Errorf("%s links %s", what, path)
				}
			}
		}
		if external < 20 || external > c.most {
			t.Errorf("%s links %d external packages, want at most %d", what, external, c.most)
		}
	}
}

func checkImports(t *testing.T, path, folder string, rules room) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Errorf("read %s: %v", path, err)
		return
	}
	own, external := rules.own, rules.external
	if strings.HasSuffix(path, "_test.go") {
		own = slices.Concat(own, rules.tests, testRooms, []string{folder})
		external = slices.Concat(external, testExternal)
	}
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Errorf("read %s: %v", path, err)
			continue
		}
		if inside, ours := strings.CutPrefix(imported, module+"/"); ours {
			if !slices.Contains(own, inside) {
				t.Errorf("%s imports %s, and %s may import of this module only %v", path, inside, folder, own)
			}
			continue
		}
		first, _, _ := strings.Cut(imported, "/")
		if !strings.Contains(first, ".") {
			continue // the standard library
		}
		if !slices.ContainsFunc(external, func(allowed string) bool {
			return imported == allowed || strings.HasPrefix(imported, allowed+"/")
		}) {
			t.Errorf("%s imports %s, and %s may import of other modules only %v", path, imported, folder, external)
		}
	}
}
