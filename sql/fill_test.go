package sql

import (
	"io/fs"
	"strings"
	"testing"
)

// Breaks it catches: a file that names what cannot be filled in, or a column that the outbox is not to have; a value
// that is taken for a part of the file. Seen to fail with a place misspelt in a file, with the columns of the aggregate
// always there, and with what was filled in looked at once more.
func TestEveryPlaceInTheFilesIsFilled(t *testing.T) {
	const hostile = `'{{.Schema}}'`
	n := Names{Schema: "s", ID: "id", Extra: []string{"region"}, PublishedWhen: "state = " + hostile, IDType: "uuid",
		Shown: Shown{Event: []Field{{Name: "what", Expression: "o.fields->>'kind'"}}}}
	names, err := fs.Glob(files, "*.sql")
	if err != nil || len(names) < len(relay)+len(outbox) {
		t.Fatalf("files: got %q, %v", names, err)
	}
	for _, name := range names {
		text, err := render(name, n)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(strings.ReplaceAll(text, hostile, ""), "{{") {
			t.Errorf("%s: got %s, want every place filled", name, text)
		}
	}
	view, err := View(n)
	if err != nil || !strings.Contains(view, "(state = "+hostile) ||
		!strings.Contains(view, ",\n       o.fields->>'kind' AS what") {
		t.Errorf("got %s, %v; want the condition as it is, and the column", view, err)
	}
	table, err := Table(n)
	if err != nil || strings.Contains(table, "text NOT NULL,\n     text") ||
		strings.Count(table, " text NOT NULL,") != 1 || !strings.Contains(table, "\n    region text,\n") {
		t.Errorf("got %s, %v; want no column for the aggregate, and one for the region", table, err)
	}
	if _, err := n.fill("SELECT {{.Nothing}}", "x.sql"); err == nil || !strings.Contains(err.Error(), "x.sql") {
		t.Errorf("an unknown name: got %v, want an error with the file's name", err)
	}
}

// Breaks it catches: an index for long ids where ids are short, or none where they are long. Seen to fail with the type
// not looked at.
func TestStepsForTextIDsAreForThemOnly(t *testing.T) {
	for idType, want := range map[string]bool{"text": true, "uuid": false, "bigint": false} {
		for part, version := range map[string]int{Relay: 8, "outbox": 5} {
			steps, err := Steps(part, version-1, Names{IDType: idType})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(steps[0].SQL, "USING hash"); got != want || steps[0].Version != version {
				t.Errorf("%s %d with %s: got %s, want an index: %t", part, version, idType, steps[0].SQL, want)
			}
		}
	}
}
