package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// verdict is the tests' output about a change: nothing when all pass.
type verdict struct {
	by      string // the test that notices it
	refused string // why the server refuses the statement, if that is why it fails
	unclear string // the test that fails with the change, and without it right behind
}

// noticeSQL runs the tests with the change until one fails.
func (b *bed) noticeSQL(ctx context.Context, binary string, s site, names []string, took map[string]time.Duration,
	worker int, o options) (v verdict, err error) {
	order := strconv.Itoa(s.id)
	// a few at a time: the first mostly notice, and tests of one run come in the order of their files
	for at, next := 0, 1; at < len(names); at, next = at+next, 4*next {
		some := names[at:min(at+next, len(names))]
		usual := time.Duration(0)
		for _, name := range some {
			usual += took[name]
		}
		r, err := b.runSQL(ctx, binary, order, some, o.within+3*usual, worker, o)
		if err != nil {
			return v, err
		}
		if r.failed == "" {
			continue
		}
		// One that fails in the time that it needs to pass has not waited for anything without success. Else a machine that
		// is busy may be what it fails of: it must pass without the change, right now, and in far less time.
		if r.took > took[r.failed] {
			free, err := b.runSQL(ctx, binary, "-1", []string{r.failed}, o.within+3*usual, worker, o)
			if err != nil {
				return v, err
			}
			if free.failed != "" || r.endless && free.took > r.took/3 {
				v.unclear = r.failed
				continue
			}
		}
		return verdict{by: r.failed, refused: string(noStatement.Find(r.output))}, nil
	}
	return v, nil
}

// noStatement finds in what a test said that the changed text is no statement any more: wrong syntax, a parameter that
// nothing uses or that has no type, an index for ON CONFLICT that is not there.
var noStatement = regexp.MustCompile(`(?m)^.*(SQLSTATE (42601|42P18|42P10|42804|42703|42P08|42803|08P01)|` +
	`expected \d+ arguments, got).*$`)

// warm is the directory of a worker's Postgres, which is made once.
func (b *bed) warm(worker int) string {
	// Where Postgres's user may go.
	return filepath.Join(os.TempDir(), fmt.Sprintf("cdc-relay-mutate-%d-%d", os.Getuid(), worker))
}

var (
	failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\w+) \(([0-9.]+s)\)`)
	timeOut    = []byte("panic: test timed out")
	// In what is printed of a panic: the tests that run when time is over, or what the panic goes through.
	panicked = regexp.MustCompile(`(?m)^\t+(Test\w+)(?:/.*)? \(|_test\.(Test\w+)[.(]`)
)

// ran is the result of one run of tests.
type ran struct {
	output  []byte
	failed  string // the first test that fails, or panics, or does not end
	endless bool
	took    time.Duration // by that test, or by all
}

// runSQL runs the tests until the first of them fails.
func (b *bed) runSQL(ctx context.Context, binary, order string, names []string, within time.Duration, worker int,
	o options) (r ran, err error) {
	args := []string{"-test.run=^(" + strings.Join(names, "|") + ")$", "-test.count=1", "-test.failfast",
		"-test.timeout=" + within.String()}
	command := exec.CommandContext(ctx, binary, append(args, o.args...)...)
	command.Dir = filepath.Join(b.root, sqlTests)
	command.Env = append(b.environ(), switchVariable+"="+order, "CDC_RELAY_TEST_POSTGRES_DIR="+b.warm(worker))
	command.WaitDelay = 10 * time.Second
	start := time.Now()
	r.output, err = command.CombinedOutput()
	r.took = time.Since(start)
	switch m := failedTest.FindSubmatch(r.output); {
	case ctx.Err() != nil:
		return r, ctx.Err()
	case m != nil:
		r.failed = string(m[1])
		r.took, err = time.ParseDuration(string(m[2]))
		return r, err
	// who knows what it left behind
	case bytes.Contains(r.output, []byte("panic: ")) || bytes.Contains(r.output, []byte("fatal error: ")):
		r.failed, r.endless = names[0], bytes.Contains(r.output, timeOut)
		if m := panicked.FindSubmatch(r.output); m != nil {
			r.failed = string(m[1]) + string(m[2])
		}
		return r, os.RemoveAll(b.warm(worker))
	case err != nil:
		return r, fmt.Errorf("run %d tests with change %s: %w: %.2000s", len(names), order, err, r.output)
	}
	return r, nil
}
