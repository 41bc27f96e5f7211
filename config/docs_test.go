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
		allowed := shorter.Replace(k.Allowed)
		if k.Default == "" || k.Default == "[]" {
			allowed = strings.TrimSuffix(allowed, ", or empty")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Name, value, cell.Replace(k.Help), cell.Replace(allowed))
	}
	return b.String()
}

// shorter leaves out of the table what the page says once above it.
var shorter = strings.NewReplacer(
	"a number with a unit (ms, s, m, h) from ", "",
	"a whole number from ", "",
	"a number from ", "",
	"a number of bytes, with or without a unit (KiB, MiB, GiB), from ", "",
	"a name as Postgres shows it, at most 63 bytes; or the same in double quotes, as in SQL", "a name",
	", which a name with a dot in it needs", "",
	"the path of a file", "a file",
	"the path of a directory", "a directory",
	"a program and its arguments, no argument with a comma", "a program",
	"characters, no control characters", "characters",
)
