package test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var (
	pageLink     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading      = regexp.MustCompile(`(?m)^#+ (.+)$`)
	testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	testName     = regexp.MustCompile("`(Test[A-Z]\\w+)[`/ ]")
	codeBlock    = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
)

// anchor returns a heading's name in links, as the usual forges make it.
func anchor(title string) string {
	var name strings.Builder
	for _, r := range strings.ToLower(title) {
		switch {
		case r == ' ':
			name.WriteByte('-')
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			name.WriteRune(r)
		}
	}
	return name.String()
}

// Break it catches: a link of a page to a page, a heading or a picture that is not there (any more), or a page that the
// index does not lead to. Seen to fail with a heading renamed, and with a page taken out of docs/README.md.
func TestLinksOfThePagesLeadSomewhere(t *testing.T) {
	t.Parallel()
	const index = "../docs/README.md"
	paths := pages(t)
	texts, anchors := map[string]string{}, map[string]map[string]bool{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = codeBlock.ReplaceAllString(string(text), "")
		anchors[path] = map[string]bool{}
		for _, m := range heading.FindAllStringSubmatch(texts[path], -1) {
			anchors[path][anchor(m[1])] = true
		}
	}
	for path, text := range texts {
		for _, m := range pageLink.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, name, _ := strings.Cut(m[1], "#")
			target := filepath.Join(filepath.Dir(path), file)
			if file == "" {
				target = path
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s: %v", path, m[1], err)
			} else if name != "" && !anchors[target][name] {
				t.Errorf("%s: %s: that page has no such heading", path, m[1])
			}
		}
	}
	for _, path := range paths {
		if filepath.Dir(path) == "../docs" && path != index && !strings.Contains(texts[index], "]("+filepath.Base(path)) {
			t.Errorf("%s does not lead to %s", index, path)
		}
	}
}

// pages are the paths of all pages that users and contributors read.
func pages(t *testing.T) []string {
	t.Helper()
	paths := []string{"../README.md", "../CHANGELOG.md", "../CONTRIBUTING.md", "../RELEASING.md", "../SECURITY.md"}
	before := len(paths)
	err := filepath.WalkDir("../docs", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".md" {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil || len(paths) == before {
		t.Fatalf("docs: %d pages, %v", len(paths)-before, err)
	}
	return paths
}

// Break it catches: a page that names as proof a test that was renamed or is gone. Seen to fail with a test renamed.
func TestTestsThatArePagesProofExist(t *testing.T) {
	t.Parallel()
	there := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range testFunction.FindAllSubmatch(text, -1) {
			there[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, path := range pages(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testName.FindAllSubmatch(text, -1) {
			named++
			if name := string(m[1]); !there[name] && filepath.Base(filepath.Dir(path)) != "lab" {
				t.Errorf("%s names %s, which no file has", path, name)
			}
		}
	}
	if named < 50 {
		t.Errorf("the pages name %d tests, which cannot be all", named)
	}
}
