package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// outcome is what one run of one test came to.
type outcome int

const (
	passed outcome = iota
	skipped
	failed  // it says so
	crashed // a panic, or no end
	unclear // not the test: the process ended before it, or after
)

// run runs one test alone, with order in the file that switches ask.
func (b *bed) run(ctx context.Context, binary, folder, test, order string, within time.Duration,
	args []string) (outcome, time.Duration, string, error) {
	if err := os.WriteFile(b.order(), []byte(order), 0o644); err != nil {
		return 0, 0, "", err
	}
	args = append([]string{"-test.run=^" + test + "$", "-test.count=1", "-test.v", "-test.timeout=" + within.String()},
		args...)
	command := exec.CommandContext(ctx, binary, args...)
	command.Dir = filepath.Join(b.root, folder)
	command.Env = b.environ()
	// The package that is being broken may be the one that ends the processes it starts.
	command.WaitDelay = 10 * time.Second
	start := time.Now()
	output, err := command.CombinedOutput()
	took, said := time.Since(start), string(output)
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return 0, 0, "", fmt.Errorf("run %s: %w", test, err)
	}
	if ctx.Err() != nil {
		return 0, 0, "", ctx.Err()
	}
	switch began := strings.Contains(said, "=== RUN   "+test); {
	case regexp.MustCompile(`(?m)^\s*--- FAIL: `+test+`\b`).MatchString(said) && !strings.Contains(said, "panic: "):
		return failed, took, said, nil
	case began && (strings.Contains(said, "panic: ") || strings.Contains(said, "fatal error: ")):
		return crashed, took, said, nil
	case strings.Contains(said, "--- SKIP: "+test+" "),
		strings.Contains(said, "--- SKIP: "+test+"/") && !strings.Contains(said, "--- PASS: "+test+"/"): // all its parts were
		return skipped, took, said, nil
	case strings.Contains(said, "--- PASS: "+test+" ") && err == nil:
		return passed, took, said, nil
	}
	return unclear, took, said, nil
}

// trace runs the test with nothing broken and returns the sites that it reaches.
func (b *bed) trace(ctx context.Context, binary, folder, test string, within time.Duration,
	args []string) (outcome, []int, time.Duration, string, error) {
	file := filepath.Join(b.dir, "trace")
	if err := os.RemoveAll(file); err != nil {
		return 0, nil, 0, "", err
	}
	result, took, said, err := b.run(ctx, binary, folder, test, "trace "+file, within, args)
	if err != nil || result != passed {
		return result, nil, took, said, err
	}
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		return 0, nil, 0, "", err
	}
	found := make([]bool, len(b.sites)+1)
	var ids []int
	for field := range strings.FieldsSeq(string(text)) {
		id, err := strconv.Atoi(field)
		if err == nil && id < len(b.sites) && !found[id] {
			found[id] = true
			ids = append(ids, id)
		}
	}
	return result, ids, took, said, nil
}
