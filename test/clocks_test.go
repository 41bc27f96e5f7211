package test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A time without its monotonic reading is compared by the clock that people and NTP set: an hour's jump makes what
// happened a moment ago an hour old, or yet to come. Breaks it catches: a liveness that fails, a breaker that opens or
// an event that is given up for it.
func TestWhatHasPassedIsMeasuredByTheClockThatIsNeverSet(t *testing.T) {
	for _, dir := range []string{"relay", "internal", "sink", "retry", "offsets", "replication"} {
		err := filepath.WalkDir(filepath.Join("..", dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for n, line := range strings.Split(string(text), "\n") {
				for _, form := range []string{"time.Now().UnixNano()", "now.UnixNano()"} {
					if strings.Contains(line, form) {
						t.Errorf("%s:%d: %s: keep a time.Time, or nanoseconds since one that this process took", path, n+1,
							strings.TrimSpace(line))
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
