package test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Break it catches: a test of the walk that was renamed or moved, so that its incident is no longer shown.
func TestWalkNamesTestsThatExist(t *testing.T) {
	script, err := os.ReadFile("walk.sh")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^ +[^|]+\|[^|]+\| (\S+) \| (Test\w+)$`).FindAllStringSubmatch(string(script), -1)
	if len(rows) < 10 {
		t.Fatalf("got %d incidents, want all of walk.sh", len(rows))
	}
	for _, row := range rows {
		files, err := filepath.Glob(filepath.Join("..", row[1], "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(text), "func "+row[2]+"(")
		}
		if !found {
			t.Errorf("%s has no %s", row[1], row[2])
		}
	}
}
