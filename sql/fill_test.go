package sql

import (
	"errors"
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
	if err != nil || len(names) < 5 {
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
func TestIndexesForTextIDsAreForThemOnly(t *testing.T) {
	for idType, want := range map[string]bool{"text": true, "uuid": false, "bigint": false} {
		for _, part := range []string{Relay, OutboxPart("d")} {
			steps, err := Steps(part, 0, Names{IDType: idType})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(steps[0].SQL, "WITH =)"); got != want {
				t.Errorf("%s with %s: got %s, want an index: %t", part, idType, steps[0].SQL, want)
			}
		}
	}
}

// An installation that is at the schema's version has nothing to do, one before it is refused, and one of a later
// version is left alone. Seen to fail with the schema run again, and with the versions before it let through.
func TestStepsBeginAtTheSchema(t *testing.T) {
	for _, name := range []string{Relay, OutboxPart("d")} {
		p := relay
		if name != Relay {
			p = outbox
		}
		newest := p.version + len(p.later)
		for above, want := range map[int]int{0: 1 + len(p.later), p.version: len(p.later), newest: 0, newest + 1: 0} {
			steps, err := Steps(name, above, Names{})
			if err != nil || len(steps) != want || want > 0 && steps[want-1].Version != newest {
				t.Errorf("%s above %d: got %d steps, %v; want %d, up to version %d", name, above, len(steps), err, want, newest)
			}
		}
		_, err := Steps(name, p.version-1, Names{})
		if _, is := errors.AsType[*TooOldError](err); !is || !strings.Contains(err.Error(), "set postgres.schema") {
			t.Errorf("%s above %d: got %v, want a TooOldError that says what to do", name, p.version-1, err)
		}
	}
}
