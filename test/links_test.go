package test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var (
	pageLink  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading   = regexp.MustCompile(`(?m)^#+ (.+)$`)
	codeBlock = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
)

// anchor is what a heading is called in links, as the usual forges make it.
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

// Break it catches: a link of a page to a page, a heading or a picture that is not there (any more), or a page that nobody
// finds from the README. Seen to fail with a heading renamed, and with a page taken out of the README.
func TestLinksOfThePagesLeadSomewhere(t *testing.T) {
	t.Parallel()
	paths := []string{"../README.md", "../CHANGELOG.md"}
	for _, pattern := range []string{"../docs/*.md", "../docs/runbooks/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d pages, %v", pattern, len(found), err)
		}
		paths = append(paths, found...)
	}
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
		if name := filepath.Base(path); filepath.Dir(path) == "../docs" && !strings.Contains(texts["../README.md"], "docs/"+name) {
			t.Errorf("the README does not lead to docs/%s", name)
		}
	}
}
