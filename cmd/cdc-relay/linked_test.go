package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// shippedTags are the build tags of the program that is shipped.
const shippedTags = "grpcnotrace"

// A program that calls a method by a name that only the run knows must have every exported method of every type in it:
// 10 MB here, of which an idle relay has 3 in memory. Breaks it catches: a library, or text/template, that does. Seen
// to fail with a text/template that a file of this package executes.
func TestTheLinkerDropsWhatNobodyCalls(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED, NOTHING WAS TESTED: it links the program")
	}
	t.Parallel()
	link := exec.Command("go", "build", "-tags", shippedTags, "-ldflags=-dumpdep", "-o",
		filepath.Join(t.TempDir(), "cdc-relay"), ".")
	link.Env = append(os.Environ(), "CGO_ENABLED=0")
	said, err := link.CombinedOutput()
	if err != nil {
		t.Fatalf("link the program: %v: %.2000s", err, said)
	}
	callers, seen := callersByName(string(said))
	if len(callers) > 0 {
		t.Errorf("these call methods by names that only the run knows: %q", callers)
	}
	if seen < 10_000 {
		t.Errorf("got %d references from the linker, want those of a whole program", seen)
	}
}

// callersByName are the functions that the linker marks, of those that it tells of, and how many references it told.
func callersByName(said string) (callers []string, seen int) {
	for line := range strings.Lines(said) {
		caller, _, arrow := strings.Cut(line, " -> ")
		if arrow {
			seen++
		}
		if name, _, marked := strings.Cut(caller, " <ReflectMethod>"); marked && !slices.Contains(callers, name) {
			callers = append(callers, name)
		}
	}
	return callers, seen
}

// Break it catches: a program that is shipped with more than was tested. Seen to fail with the tag left out of the
// Dockerfile.
func TestWhatIsShippedIsBuiltWithTheTags(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"Makefile": "TAGS := " + shippedTags + "\n", "Dockerfile": "go build -tags " + shippedTags + " ",
		".goreleaser.yaml": "flags: [-trimpath, -tags=" + shippedTags + "]\n",
	} {
		text, err := os.ReadFile("../../" + name)
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s has no %q (%v)", name, want, err)
		}
	}
}
