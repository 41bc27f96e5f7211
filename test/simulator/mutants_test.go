package simulator

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestMutantsFitTheCode keeps mutants.sh usable. Break caught: code that is moved or renamed without the patches that
// break it. Seen to fail so, when rooms were cut.
func TestMutantsFitTheCode(t *testing.T) {
	if _, err := exec.LookPath("patch"); err != nil && os.Getenv("CI") == "" {
		t.Skip("there is no program patch")
	}
	patches, err := filepath.Glob("mutants/*.patch")
	if err != nil || len(patches) == 0 {
		t.Fatalf("found %d patches, %v", len(patches), err)
	}
	for _, patch := range patches {
		text, err := os.Open(patch)
		if err != nil {
			t.Fatal(err)
		}
		try := exec.CommandContext(t.Context(), "patch", "--dry-run", "--batch", "--quiet", "--posix", "-p1")
		try.Dir, try.Stdin = filepath.Join("..", ".."), text
		if said, err := try.CombinedOutput(); err != nil {
			t.Errorf("%s fits no more: %v: %s", patch, err, said)
		}
		_ = text.Close()
	}
}
