// Package seen knows how it is told, of each test of this repository, that it was seen to fail with the code under it
// broken: in the words of its own comment, or by an entry of the record test/mutate/seen.tsv, which test/mutate writes.
package seen

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Phrase is what a test's comment says, with how the code was broken: "Seen to fail with …", "seen failing without …".
var Phrase = regexp.MustCompile(`(?i)\bseen\s+(to\s+fail|failing)\b`)

// denied is what says the opposite in the same words.
var denied = regexp.MustCompile(
	`(?i)\b(never|not|nor|nobody|without\s+being|un)[\s-]+(yet\s+|been\s+|was\s+|has\s+)*seen\s+(to\s+fail|failing)\b`)

// Claims reports whether a comment says that the test was seen to fail, and not that it was not.
func Claims(comment string) bool {
	text := strings.Join(strings.Fields(comment), " ")
	return Phrase.MatchString(denied.ReplaceAllString(text, ""))
}

// Test is one test function.
type Test struct {
	Package string // its folder, seen from the root, with slashes
	Name    string
	Says    bool // its comment, or one inside it, has the Phrase
}

// Code is what the record can name: every test, and every function and variable of the packages.
type Code struct {
	Tests []Test
	named map[[2]string]string // folder, name as Name and Values give it; what it is made of, with single spaces
}

// Unseen are the tests that neither say it nor have an entry.
func (c Code) Unseen(entries []Entry) []Test {
	return slices.DeleteFunc(slices.Clone(c.Tests), func(t Test) bool {
		return t.Says || slices.ContainsFunc(entries, func(e Entry) bool {
			return e.Package == t.Package && e.Test == t.Name
		})
	})
}

// Stale says why the entry is out of date, "" if it is not.
func (c Code) Stale(e Entry) string {
	switch {
	case !slices.ContainsFunc(c.Tests, func(t Test) bool { return t.Package == e.Package && t.Name == e.Test }):
		return "there is no such test"
	case c.named[[2]string{e.Folder, e.Where}] == "":
		return fmt.Sprintf("%s has no function or variable %s", e.Folder, e.Where)
	}
	return ""
}

// Gone says what code of the entry's change is not in its function any more, "" if all is: then nobody has seen its
// test fail with what is there now.
func (c Code) Gone(e Entry) string {
	text := c.named[[2]string{e.Folder, e.Where}]
	if changed := changedText(e.Change); !strings.Contains(essence(text), essence(changed)) {
		return fmt.Sprintf("%s of %s has no %q any more", e.Where, e.Folder, changed)
	}
	return ""
}

// changedText is the code that a change was made to, as far as the record has it.
func changedText(change string) string {
	_, rest, found := strings.Cut(change, "`")
	if !found {
		return "" // the whole function
	}
	text, _, _ := strings.Cut(rest, "`")
	if short, cut := strings.CutSuffix(text, "…"); cut {
		text = strings.TrimRightFunc(short, func(r rune) bool {
			return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) || r == ' '
		})
	}
	return text
}

var qualifier = regexp.MustCompile(`\b\w+\.`)

// essence is what stays of code that moves to another package: what stands in front of a dot, and the case of
// letters, change then.
func essence(code string) string { return strings.ToLower(qualifier.ReplaceAllString(code, "")) }

// plain is code as the record has it: in one line, without the sign that ends a change in it.
func plain(code string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(code), " "), "`", "'")
}

// Says tells whether the comment of the entry's test says it as well.
func (c Code) Says(e Entry) bool {
	return slices.Contains(c.Tests, Test{Package: e.Package, Name: e.Test, Says: true})
}

// Read reads all Go files under root, for all systems and build tags.
func Read(root string) (Code, error) {
	code := Code{named: map[[2]string]string{}}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata") {
			return filepath.SkipDir
		}
		if entry.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		source := func(n ast.Node) string {
			return plain(string(text[files.Position(n.Pos()).Offset:files.Position(n.End()).Offset]))
		}
		code.add(filepath.ToSlash(folder), file, strings.HasSuffix(path, "_test.go"), source)
		return nil
	})
	return code, err
}

func (c *Code) add(folder string, file *ast.File, tests bool, source func(ast.Node) string) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			switch {
			case !tests:
				c.named[[2]string{folder, Name(d)}] += source(d) + "\n" // of several systems, more than one
			case isTest(d):
				c.Tests = append(c.Tests, Test{Package: folder, Name: d.Name.Name, Says: says(file, d)})
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if s, ok := s.(*ast.ValueSpec); ok && !tests {
					c.named[[2]string{folder, Values(s)}] += source(s) + "\n"
				}
			}
		}
	}
}

// Name is a function's name as the record has it, a method's with its type: dispatcher.submit.
func Name(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List) != 1 {
		return f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	for {
		switch r := receiver.(type) {
		case *ast.StarExpr:
			receiver = r.X
			continue
		case *ast.IndexExpr:
			receiver = r.X
			continue
		case *ast.IndexListExpr:
			receiver = r.X
			continue
		case *ast.Ident:
			return r.Name + "." + f.Name.Name
		}
		return f.Name.Name
	}
}

// Values are the names of variables that are declared together.
func Values(s *ast.ValueSpec) string {
	names := make([]string, len(s.Names))
	for i, n := range s.Names {
		names[i] = n.Name
	}
	return strings.Join(names, ",")
}

// isTest is what `go test` takes for a test, TestMain apart.
func isTest(f *ast.FuncDecl) bool {
	rest, named := strings.CutPrefix(f.Name.Name, "Test")
	if !named || f.Recv != nil || f.Type.Params.NumFields() != 1 || rest != "" && rest[0] >= 'a' && rest[0] <= 'z' {
		return false
	}
	pointer, ok := f.Type.Params.List[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	selected, ok := pointer.X.(*ast.SelectorExpr)
	return ok && selected.Sel.Name == "T"
}

func says(file *ast.File, f *ast.FuncDecl) bool {
	for _, comment := range file.Comments {
		within := comment == f.Doc || comment.Pos() >= f.Pos() && comment.End() <= f.End()
		if within && Claims(comment.Text()) {
			return true
		}
	}
	return false
}
