package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// loadSQL reads a list of changes: folder, function, change, and why nobody notices it or which test does, with tabs
// between.
func loadSQL(path string) (map[string]string, error) {
	list := map[string]string{}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	for n, line := range strings.Split(string(text), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(line, "\t")
		if len(f) != 4 || strings.TrimSpace(f[3]) == "" {
			return nil, fmt.Errorf("%s:%d: want folder, function, change, and reason or test, with a tab between", path, n+1)
		}
		list[strings.Join(f[:3], "\t")] = f[3]
	}
	return list, nil
}

// saveSQL writes which test noticed which change. The file is whole at any time.
func saveSQL(path string, list map[string]string) error {
	text := "# Which test of store notices which change of its SQL. Written by `make mutate-sql`; see docs/design.md.\n" +
		"# changed in\tfunction\tchange\ttest\n"
	for _, key := range slices.Sorted(maps.Keys(list)) {
		text += key + "\t" + list[key] + "\n"
	}
	next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(next, path)
}
