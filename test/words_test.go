package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Words and patterns that a reader of pgx or of the standard library would stumble over.
var (
	odd = []string{"anew", "somebody", "nobody", "meanwhile", "by turns", "of which", "of whom", "for ever", "for good",
		"in vain", "amiss", "mend", "mends", "mended", "lest", "whoever"}
	oddWords       = regexp.MustCompile(`(?i)\b(` + strings.Join(odd, "|") + `)\b`)
	oddDefinitions = regexp.MustCompile(`\b(is|are) what\b`)
)

// oddIn are the odd words of a text. The pattern alone takes ten seconds for the texts of this repository.
func oddIn(text string) []string {
	small := strings.ToLower(text)
	if !slices.ContainsFunc(odd, func(word string) bool { return strings.Contains(small, word) }) {
		return nil
	}
	return oddWords.FindAllString(text, -1)
}

// Hits allowed per 1,000 lines of comments.
const (
	mostOddWords       = 1.0
	mostOddDefinitions = 1.0
)

// Seen to fail with each bound lowered, and with "nobody" in an error.
func TestCommentsAndMessagesAreInPlainEnglish(t *testing.T) {
	t.Parallel()
	lines, words, definitions := 0, 0, 0
	for _, path := range goFiles(t) {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range file.Comments {
			text := group.Text()
			lines += strings.Count(text, "\n")
			words += len(oddIn(text))
			if strings.Contains(text, " what") {
				definitions += len(oddDefinitions.FindAllString(text, -1))
			}
		}
		if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "../test/") {
			continue
		}
		ast.Inspect(file, func(node ast.Node) bool {
			text, is := node.(*ast.BasicLit)
			if !is || text.Kind != token.STRING {
				return true
			}
			for _, word := range oddIn(text.Value) {
				t.Errorf("%s: %q stands in a text that people read: %s", files.Position(text.Pos()), word, text.Value)
			}
			return true
		})
	}
	perThousand := func(n int) float64 { return 1000 * float64(n) / float64(lines) }
	t.Logf("%d lines of comments: %.1f odd words and %.1f odd definitions in 1,000", lines, perThousand(words),
		perThousand(definitions))
	if perThousand(words) > mostOddWords || perThousand(definitions) > mostOddDefinitions {
		t.Errorf("in 1,000 lines of comments: got %.1f odd words and %.1f odd definitions, want at most %.1f and %.1f",
			perThousand(words), perThousand(definitions), mostOddWords, mostOddDefinitions)
	}
}

// goFiles are all files of this repository with Go code.
func goFiles(t *testing.T) (paths []string) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".go" {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}
