package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Words and patterns that a reader of pgx or of the standard library would stumble over.
var (
	oddWords = regexp.MustCompile(`(?i)\b(anew|somebody|nobody|meanwhile|by turns|of which|of whom|for ever|for good|` +
		`in vain|amiss|mend(s|ed)?|lest|whoever)\b`)
	oddDefinitions = regexp.MustCompile(`\b(is|are) what\b`)
)

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
			words += len(oddWords.FindAllString(text, -1))
			definitions += len(oddDefinitions.FindAllString(text, -1))
		}
		if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "../test/") {
			continue
		}
		ast.Inspect(file, func(node ast.Node) bool {
			text, is := node.(*ast.BasicLit)
			if is && text.Kind == token.STRING && oddWords.MatchString(text.Value) {
				t.Errorf("%s: %q stands in a text that people read: %s", files.Position(text.Pos()),
					oddWords.FindString(text.Value), text.Value)
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
