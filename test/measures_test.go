package test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Bounds that catch a package which has swallowed its neighbours, and that no other package comes near.
// golangci-lint measures functions and lines.
const (
	mostFiles = 40    // product files of a package
	mostLines = 6_000 // of them together
	fewLines  = 150   // for a package of its own
)

// TestPackagesStayReadable counts the product files of each package and their lines; with -v it prints the sums. Seen
// to fail with a bound of 20 files.
func TestPackagesStayReadable(t *testing.T) {
	found, err := measure("..")
	if err != nil {
		t.Fatal(err)
	}
	packages, small, lines := 0, 0, 0
	for _, piece := range slices.Sorted(maps.Keys(found)) {
		m := found[piece]
		if m.got > m.most {
			t.Errorf("%s: got %d, want at most %d", piece, m.got, m.most)
		}
		if strings.HasPrefix(piece, "lines of ") {
			packages, lines = packages+1, lines+m.got
			if m.got < fewLines {
				small++
			}
		}
	}
	t.Logf("%d packages, %d of them under %d lines; %d lines", packages, small, fewLines, lines)
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
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		folder = filepath.ToSlash(folder)
		add("files of "+folder, 1, mostFiles)
		add("lines of "+folder, strings.Count(string(text), "\n"), mostLines)
		return nil
	})
	return found, err
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
