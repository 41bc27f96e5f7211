package test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The sizes at which a reader can still hold a piece of the house in mind. golangci-lint measures functions and lines.
const (
	mostFiles   = 20    // product files of a package
	mostLines   = 3_000 // of them together
	mostFields  = 20    // of a struct, configurations apart
	mostMethods = 15    // that an interface declares itself
)

// TestPiecesAreSmall measures packages, structs and interfaces of the product. Break it catches: a room that grows
// until nobody can say what a file may touch. Seen to fail with 21 fields of the Kafka driver and 21 files of commands.
func TestPiecesAreSmall(t *testing.T) {
	found, err := measure("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, piece := range slices.Sorted(maps.Keys(found)) {
		if m := found[piece]; m.got > m.most {
			t.Errorf("%s: got %d, want at most %d", piece, m.got, m.most)
		}
	}
}

type measured struct{ got, most int }

// measure counts what the product's Go files hold.
func measure(root string) (map[string]measured, error) {
	found := map[string]measured{}
	add := func(piece string, n, most int) { found[piece] = measured{found[piece].got + n, most} }
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" ||
			path == filepath.Join(root, "test")) {
			return filepath.SkipDir
		}
		if entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parse: %w", err)
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		folder = filepath.ToSlash(folder)
		add("files of "+folder, 1, mostFiles)
		add("lines of "+folder, strings.Count(string(text), "\n"), mostLines)
		ast.Inspect(file, func(n ast.Node) bool {
			spec, is := n.(*ast.TypeSpec)
			if !is {
				return true
			}
			name := folder + "." + spec.Name.Name
			switch shape := spec.Type.(type) {
			case *ast.StructType:
				if folder != "config" && spec.Name.Name != "Config" { // as many as there are keys
					add("fields of "+name, fields(shape.Fields), mostFields)
				}
			case *ast.InterfaceType:
				add("methods of "+name, methods(shape.Methods), mostMethods)
			}
			return true
		})
		return nil
	})
	return found, err
}

// fields counts each name of a declaration, and an embedded type as one.
func fields(list *ast.FieldList) (n int) {
	for _, f := range list.List {
		n += max(1, len(f.Names))
	}
	return n
}

// methods counts those that the interface declares itself; an embedded interface is the sum of what others asked for.
func methods(list *ast.FieldList) (n int) {
	for _, f := range list.List {
		if _, is := f.Type.(*ast.FuncType); is {
			n++
		}
	}
	return n
}

// Files stay short enough to read in one go. Break it catches: a file that grows past what the house allows (seen to
// fail with 450 lines more in one).
func TestFilesAreShort(t *testing.T) {
	const most = 400
	root := ".."
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if lines := strings.Count(string(text), "\n"); lines > most {
			t.Errorf("%s has %d lines, want at most %d", path, lines, most)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestEachFileIsTestedWhereAReaderFindsIt wants a test file of its own beside each product file, or a package comment
// that says where its files are tested. Seen to fail with the sentence of package lease taken out.
func TestEachFileIsTestedWhereAReaderFindsIt(t *testing.T) {
	comments, untested := map[string]string{}, map[string][]string{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch filepath.ToSlash(path) {
		case "../test", "../examples", "../.cache": // the last has code that make mutate broke
			return filepath.SkipDir
		}
		if entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			return err
		}
		folder := filepath.Dir(path)
		comments[folder] += file.Doc.Text()
		if _, err := os.Stat(strings.TrimSuffix(path, ".go") + "_test.go"); err != nil {
			untested[folder] = append(untested[folder], filepath.Base(path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(comments) < 40 {
		t.Fatalf("got %d packages, so the house was not walked", len(comments))
	}
	for _, folder := range slices.Sorted(maps.Keys(untested)) {
		if !says.MatchString(comments[folder]) {
			t.Errorf("%s: nothing says where %s are tested", folder, strings.Join(untested[folder], ", "))
		}
	}
}

var says = regexp.MustCompile(`(?i)\btest(s|ed)\b`)
