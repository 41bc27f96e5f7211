package harness

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Build builds a program as it is shipped, stripped, by its path in one of this repository's modules.
func Build(t testing.TB, module, program string) (binary string) {
	t.Helper()
	binary, err := build(module, program, "-ldflags=-s -w")
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// build builds a program, by its path in one of this repository's modules, for as long as the tests run: those of this
// process, or with CDC_RELAY_TEST_BUILT those of all, of which the first builds it.
func build(module, program string, flags ...string) (binary string, err error) {
	shared := os.Getenv("CDC_RELAY_TEST_BUILT")
	if shared == "" {
		dir, err := os.MkdirTemp("", "cdc-relay-binary-")
		if err != nil {
			return "", fmt.Errorf("make a directory: %w", err)
		}
		AtEnd(func() error { return os.RemoveAll(dir) })
		binary = filepath.Join(dir, "program")
		return binary, buildAt(binary, module, program, flags)
	}
	name := sha256.Sum256([]byte(strings.Join(slices.Concat(flags, []string{module, program}), "\x00")))
	dir := filepath.Join(shared, fmt.Sprintf("%x", name[:8]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make a directory: %w", err)
	}
	unlock, err := lockFile(filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	binary = filepath.Join(dir, "program")
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	if err := buildAt(binary+".new", module, program, flags); err != nil {
		return "", err
	}
	if err := os.Rename(binary+".new", binary); err != nil {
		return "", fmt.Errorf("move what was built into place: %w", err)
	}
	return binary, nil
}

func buildAt(binary, module, program string, flags []string) error {
	command := exec.Command("go", slices.Concat([]string{"build", "-o", binary}, flags, []string{program})...)
	command.Dir = filepath.Join(moduleDir(), module)
	if !slices.Contains(flags, "-race") { // static, as it is shipped; so all builds of it share what is compiled
		command.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s in %s: %w: %s", program, command.Dir, err, output)
	}
	return nil
}
