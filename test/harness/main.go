package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// shared holds what is started once per test process.
var shared struct {
	mu      sync.Mutex
	closers []func() error // in the order of the starts; guarded by mu
}

// Main runs the tests, stops the shared servers, and fails if a goroutine was left behind.
func Main(m *testing.M) {
	code := m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	for n := len(shared.closers) - 1; n >= 0; n-- {
		if err := shared.closers[n](); err != nil {
			fmt.Fprintln(os.Stderr, "harness:", err)
			code = max(code, 1)
		}
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "harness: goroutines left behind:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// AtEnd has [Main] call f after the tests, before what was started before.
func AtEnd(f func() error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.closers = append(shared.closers, f)
}

// missing skips the test because the machine lacks something, or fails it in CI.
func missing(t testing.TB, what string, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is missing, and in CI that is a failure: %v", what, err)
	}
	if err := noteMissing(fmt.Sprintf("%s: %s is missing\n", t.Name(), what)); err != nil {
		t.Error(err)
	}
	t.Skipf("SKIPPED, NOTHING WAS TESTED: %s is missing: %v", what, err)
}

// noteMissing adds a line to the file that CDC_RELAY_TEST_MISSING names: without -v, go test says nothing of a test
// that was skipped, so make test prints that file last.
func noteMissing(line string) error {
	name := os.Getenv("CDC_RELAY_TEST_MISSING")
	if name == "" {
		return nil
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("note what is missing: %w", err)
	}
	_, err = file.WriteString(line)
	return errors.Join(err, file.Close())
}

// needsServers skips the test under -short.
func needsServers(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short: it needs servers")
	}
}

var uniqueCount atomic.Uint64

// uniqueRun differs between the test processes that use the same broker.
var uniqueRun = fmt.Sprintf("%x", time.Now().UnixNano()&0xffffffffff^int64(os.Getpid())<<40)

// Unique makes a name that no other test uses: letters, digits and _, at most 63 bytes, so that it also serves as a
// database, slot, publication or topic.
func Unique(t testing.TB, name string) string {
	t.Helper()
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '_':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '_'
	}, name)
	return fmt.Sprintf("%.30s_%s_%d", clean, uniqueRun, uniqueCount.Add(1))
}

// Eventually polls until condition returns "", and fails the test with what it returned last. It is for conditions in
// other processes. It polls each 20 ms, and less often, to each 100 ms, the longer it waits. It counts the pauses, not
// the time, because a busy machine slows down the test as well as what it waits for; no wait takes more than ten times
// as long as given.
func Eventually(t testing.TB, within time.Duration, what string, condition func(context.Context) string) {
	t.Helper()
	const every, rarely, slowest = 20 * time.Millisecond, 100 * time.Millisecond, 10
	ctx, cancel := context.WithTimeout(t.Context(), slowest*within)
	defer cancel()
	began, last := time.Now(), "no poll returned"
	for waited := time.Duration(0); waited < max(within, every); {
		said := condition(ctx)
		if said == "" {
			return
		}
		if ctx.Err() != nil {
			break // what was cut off by the end says nothing
		}
		last = said
		pause := min(max(every, waited/20), rarely)
		waited += pause
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	t.Fatalf("%s: not within %v of a quiet machine, %v of this one: %s", what, within,
		time.Since(began).Round(time.Millisecond), last)
}

// Full leaves a test out of make test, which takes ten minutes; make test-rest runs those that begin with it. Plain go
// test runs all. It stands first in the test, in a line of its own: test/run.sh looks for it there.
func Full(t testing.TB) {
	t.Helper()
	if os.Getenv("CDC_RELAY_TEST_QUICK") == "1" {
		t.Skip("left out of make test; make test-rest runs it")
	}
}
