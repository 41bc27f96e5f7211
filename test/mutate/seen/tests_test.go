package seen

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Breaks caught: a comment that says the opposite taken for the statement, or the statement not found where a line
// ends in it. Seen to fail with what denies it left in.
func TestStatementIsToldFromItsOpposite(t *testing.T) {
	for comment, want := range map[string]bool{
		"Break caught: x. Seen to fail without y.":      true,
		"Breaks it catches: x (seen failing so).":       true,
		"Seen\nto fail without y.":                      true,
		"It was never seen to fail.":                    false,
		"This has not been seen to fail yet.":           false,
		"Never seen failing. Seen to fail with y, now.": true,
		"Break caught: x.":                              false,
	} {
		if got := Claims(comment); got != want {
			t.Errorf("%q: got %v, want %v", comment, got, want)
		}
	}
}

// Breaks caught: an entry that names code that is gone and stays, or one that is right and goes. Seen to fail with
// the text of the change not looked for.
func TestEntryIsStaleWhenItsCodeIsGone(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"p.go": "package p\n\nfunc (s *T) f(a int) int {\n\tif a >\n\t\t1 {\n\t\treturn 1\n\t}\n\treturn 2\n}\n\nvar " +
			"v, w = 1, `x`\n",
		"p_test.go": "package p\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) {}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		entry Entry
		want  string
	}{
		{Entry{".", "TestF", ".", "T.f", "`a > 1` -> `!(a > 1)`"}, ""},
		{Entry{".", "TestF", ".", "T.f", "`if a > …` left out"}, ""},
		{Entry{".", "TestF", ".", "T.f", "returns at once, with nothing done"}, ""},
		{Entry{".", "TestF", ".", "v,w", "`'x'` -> `\"\"`"}, ""},
		{Entry{".", "TestF", ".", "T.f", "`a > 2` -> `!(a > 2)`"}, "any more"},
		{Entry{".", "TestF", ".", "T.g", "`a > 1` -> `!(a > 1)`"}, "no function"},
		{Entry{".", "TestG", ".", "T.f", "`a > 1` -> `!(a > 1)`"}, "no such test"},
	} {
		if got := code.Stale(row.entry) + code.Gone(row.entry); (row.want == "") != (got == "") ||
			!strings.Contains(got, row.want) {
			t.Errorf("%v: got %q, want %q", row.entry, got, row.want)
		}
	}
}
