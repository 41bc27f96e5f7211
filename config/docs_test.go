package config

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Breaks it catches: a key, default, rule or sentence that changed and whose documentation did not.
func TestDocumentationListsEveryKey(t *testing.T) {
	const path, begin, end = "../docs/configuration.md", "<!-- keys: written by go test ./config -rewrite -->\n",
		"<!-- end of keys -->"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	have, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no lines %q and %q", path, strings.TrimSpace(begin), end)
	}
	want := keyTable()
	if *rewrite {
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		have = want
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("the keys in %s (-want +got), go test ./config -rewrite writes them:\n%s", path, diff)
	}
}

func keyTable() string {
	var b strings.Builder
	b.WriteString("| key | default | meaning | allowed |\n|---|---|---|---|\n")
	cell := strings.NewReplacer("|", `\|`, "<", "&lt;")
	for _, k := range availableKeys() {
		value := ""
		if k.Default != "" {
			value = "`" + k.Default + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Name, value, cell.Replace(k.Help), cell.Replace(k.Allowed))
	}
	return b.String()
}
