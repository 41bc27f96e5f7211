package simulator

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
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
		try := exec.CommandContext(t.Context(), "patch", "--dry-run", "--batch", "--fuzz=0", "--quiet", "--posix", "-p1")
		try.Dir, try.Stdin = filepath.Join("..", ".."), text
		if said, err := try.CombinedOutput(); err != nil {
			t.Errorf("%s fits no more: %v: %s", patch, err, said)
		}
		_ = text.Close()
	}
}

// quick are patches that the simulator notices within some hundred seeds: `make test` has the time for two. The
// others are for `make mutants`.
var quick = []string{"clean-with-work-left", "queue-unknown-is-done"}

// TestQuickMutantsAreNoticed breaks the relay, and the judge must see it. Breaks it catches: an invariant that is
// judged no more, a world in which nothing goes wrong. Seen to fail with one seed instead of 1,000.
func TestQuickMutantsAreNoticed(t *testing.T) {
	if testing.Short() || raced {
		t.Skip("compiles the relay twice; make test does it without the race detector")
	}
	if _, err := exec.LookPath("patch"); err != nil && os.Getenv("CI") == "" {
		t.Skip("there is no program patch")
	}
	for _, name := range quick {
		t.Run(name, func(t *testing.T) {
			kind := Kafka
			overlay, text := patched(t, filepath.Join("mutants", name+".patch"))
			if m := regexp.MustCompile(`(?m)^Kind: (\S+)$`).FindStringSubmatch(text); m != nil {
				kind = m[1]
			}
			play := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-vet=off", "-overlay="+overlay,
				"-run=EveryRunKeeps", ".", "-args", "-seeds=1000", "-kinds="+kind)
			said, err := play.CombinedOutput()
			if noticed := regexp.MustCompile(`seed \d+`).Find(said); err == nil || noticed == nil {
				t.Errorf("got %v, want a violated invariant and its seed:\n%.2000s", err, said)
			} else {
				t.Logf("noticed: %s", noticed)
			}
		})
	}
}

// patched returns an overlay for the compiler in which the patch is applied, and the patch.
func patched(t *testing.T, name string) (overlay, text string) {
	t.Helper()
	patch, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	dir, replace := t.TempDir(), map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\+\+\+ b/(\S+)`).FindAllStringSubmatch(string(patch), -1) {
		whole, err := os.ReadFile(filepath.Join(root, m[1]))
		if err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(root, m[1])] = filepath.Join(dir, m[1])
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, m[1])), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, m[1]), whole, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	apply := exec.CommandContext(t.Context(), "patch", "--batch", "--quiet", "--posix", "-p1")
	apply.Dir, apply.Stdin = dir, strings.NewReader(string(patch))
	if said, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("apply %s: %v: %s", name, err, said)
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, list, 0o644); err != nil {
		t.Fatal(err)
	}
	return overlay, string(patch)
}
