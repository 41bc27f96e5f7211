package seen

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Entry says with which change of the code a test was seen to fail.
type Entry struct {
	Package string // the test's folder
	Test    string
	Folder  string // of the code that was changed
	Where   string // function or variable in it
	Change  string
}

const head = "# Which change of the code each test was seen to fail with, where its comment does not say so. " +
	"Written by `make mutate`; see docs/design.md.\n" +
	"# package\ttest\tchanged in\tfunction\tchange\n"

// Load reads the record; a file that does not exist is an empty one.
func Load(path string) ([]Entry, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var entries []Entry
	for n, line := range strings.Split(string(text), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(line, "\t")
		if len(f) != 5 {
			return nil, fmt.Errorf("%s:%d: got %d fields, want 5, with a tab between", path, n+1, len(f))
		}
		entries = append(entries, Entry{f[0], f[1], f[2], f[3], f[4]})
	}
	return entries, nil
}

// Save writes the record, sorted, one entry for a test: the first. The file is whole at any time.
func Save(path string, entries []Entry) error {
	entries = slices.Clone(entries)
	slices.SortStableFunc(entries, func(a, b Entry) int {
		return strings.Compare(a.Package+"\t"+a.Test, b.Package+"\t"+b.Test)
	})
	entries = slices.CompactFunc(entries, func(a, b Entry) bool { return a.Package == b.Package && a.Test == b.Test })
	var text strings.Builder
	text.WriteString(head)
	for _, e := range entries {
		text.WriteString(strings.Join([]string{e.Package, e.Test, e.Folder, e.Where, e.Change}, "\t") + "\n")
	}
	next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(next, []byte(text.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(next, path)
}
