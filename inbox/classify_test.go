package inbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// One row for each reason. Seen to fail with deadlocks taken for the event's own failures.
func TestWhatAFailureMeansForItsEvent(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	code := func(c string) error { return fmt.Errorf("insert: %w", &pgconn.PgError{Code: c}) }
	for _, c := range []struct {
		err  error
		want cause
	}{
		{errors.New("no such customer"), causeTransient},
		{Permanent(errors.New("no such customer")), causePermanent},
		{fmt.Errorf("bill: %w", Permanent(io.EOF)), causePermanent},
		{Outage(errors.New("away")), causeOutage},
		{RetryAfter(time.Second, errors.New("busy")), causeTransient},
		{errHandlerTimeout, causeTransient},
		{fmt.Errorf("call: %w", context.DeadlineExceeded), causeTransient},
		{errors.Join(errInterrupted, code("57014")), causeLost},
		{code("23505"), causeTransient},
		{code("40001"), causeConflict},
		{code("40P01"), causeConflict},
		{code("55P03"), causeConflict},
		{code("25P03"), causeTransient},
		{code("57P01"), causeLost},
		{code("25006"), causeLost},
		{code("53100"), causeLost},
		{code("08006"), causeLost},
		{pgx.ErrTxCommitRollback, causeTransient},
		{fmt.Errorf("connect: %w", refused), causeLost},
		{io.ErrUnexpectedEOF, causeLost},
	} {
		if got := classify(c.err); got != c.want {
			t.Errorf("%v: got %d, want %d", c.err, got, c.want)
		}
	}
	if got := classify(own(code("42501"))); got != causeOutage {
		t.Errorf("a missing right on the inbox's tables: got %d, want %d: it is no event's fault", got, causeOutage)
	}
}

// Seen to fail with a schedule that repeats its first wait.
func TestWaitsFollowTheSchedule(t *testing.T) {
	r := Retry{Schedule: []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute}}.complete()
	if r.MaxAttempts != 4 {
		t.Errorf("attempts: got %d, want 4", r.MaxAttempts)
	}
	for n, want := range []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, 15 * time.Minute} {
		if got := r.after(n+1, 0.5); got != want {
			t.Errorf("attempt %d: got %v, want %v", n+1, got, want)
		}
	}
	r = Retry{InitialBackoff: 50 * time.Millisecond, MaxBackoff: time.Second}.complete()
	for n, want := range map[int]time.Duration{1: 50 * time.Millisecond, 3: 200 * time.Millisecond, 60: time.Second} {
		if got := r.after(n, 0.5); got != want {
			t.Errorf("attempt %d: got %v, want %v", n, got, want)
		}
	}
}

// Seen to fail with retries that count the first attempt.
func TestTheEnvironmentConfigures(t *testing.T) {
	environment := map[string]string{
		"CONSUMER_MAX_CONCURRENCY": "7", "CONSUMER_MAX_RETRIES": "3", "CONSUMER_BASE_DELAY_MS": "20",
		"CONSUMER_MAX_DELAY_MS": "900", "CONSUMER_RETRY_SCHEDULE": "1m, 5m,15m",
	}
	lookup := func(name string) (string, bool) { v, ok := environment[name]; return v, ok }
	c, err := Config{}.from(lookup)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(c.Workers, c.Retry.MaxAttempts, c.Retry.InitialBackoff, c.Retry.MaxBackoff, c.Retry.Schedule)
	if want := "7 4 20ms 900ms [1m0s 5m0s 15m0s]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	environment["CONSUMER_RETRY_BASE_DELAY_MS"], environment["CONSUMER_RETRY_MAX_DELAY_MS"] = "30", "700"
	if c, err = (Config{}).from(lookup); err != nil || c.Retry.InitialBackoff != 30*time.Millisecond ||
		c.Retry.MaxBackoff != 700*time.Millisecond {
		t.Errorf("the names with RETRY: got %v, %v, %v", c.Retry.InitialBackoff, c.Retry.MaxBackoff, err)
	}
	environment["CONSUMER_MAX_RETRIES"], environment["CONSUMER_BASE_DELAY_MS"] = "many", "0"
	var joined interface{ Unwrap() []error }
	if _, err := (Config{}).from(lookup); !errors.As(err, &joined) || len(joined.Unwrap()) != 2 {
		t.Errorf("two wrong values: got %v, want both named", err)
	}
}
