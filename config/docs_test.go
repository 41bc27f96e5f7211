package config

import (
	"fmt"
	"os"
	"slices"
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

// keyTable has a row for each key, and one for keys that differ only in their section.
func keyTable() string {
	type row struct{ names, rest string }
	var rows []row
	cell := strings.NewReplacer("|", `\|`, "<", "&lt;")
	for _, k := range availableKeys() {
		value := ""
		if k.Default != "" {
			value = "`" + k.Default + "`"
		}
		name := "`" + k.Name + "`"
		rest := fmt.Sprintf("%s | %s | %s", value, cell.Replace(shorter.Replace(k.Help)), cell.Replace(allowed(k)))
		same := func(r row) bool { return r.rest == rest && !strings.Contains(k.Name, "password") }
		if i := slices.IndexFunc(rows, same); i >= 0 {
			rows[i].names += ", " + name
		} else {
			rows = append(rows, row{name, rest})
		}
	}
	var b strings.Builder
	b.WriteString("| key | default | meaning | allowed |\n|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s |\n", r.names, r.rest)
	}
	return b.String()
}

// allowed is what the table says about a key's values: nothing where the default or the meaning has it.
func allowed(k Key) string {
	text := shorter.Replace(k.Allowed)
	if k.Default == "" || k.Default == "[]" {
		text = strings.TrimSuffix(text, ", or empty")
	}
	choices := strings.Split(text, ", ")
	missing := func(c string) bool { return strings.Contains(c, " ") || !strings.Contains(k.Help, c) }
	if text == "true, false" || len(choices) > 1 && !slices.ContainsFunc(choices, missing) {
		return ""
	}
	return text
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
	"; the files below are read again at each connect", "",
	", read again at each connect", "",
	", read again at each request", "",
	"program and arguments that print ", "program that prints ",
	", run at each connect until what it prints expires; no shell", "",
	", run at each request until what it prints expires; no shell", "",
	"; columns that are headers of the message in braces, and {key}, the message key", "",
	"PEM file of trusted authorities", "PEM file of the authorities to trust",
)
