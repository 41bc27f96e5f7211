package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Breaks it catches: a nightly job that never ends and says nothing, because the server is gone or each step takes
// longer than a statement may; one that gives up at a lock. Seen to fail with no bound, and with locks not told from
// the rest.
func TestCleanupGivesUpWhatCannotSucceed(t *testing.T) {
	for code, waits := range map[string]time.Duration{"55P03": time.Hour, "57014": stepPatience + 10*time.Second,
		"28P01": stepPatience + 10*time.Second} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			began, done := time.Now(), int64(0)
			refused := &pgconn.PgError{Code: code}
			err := cleaner{tell: func(string) {}, pause: time.Millisecond}.all(ctx, "rows", 10, &done,
				func() (int, bool, error) {
					time.Sleep(3 * time.Second)
					return 0, false, refused
				})
			if took := time.Since(began); took > waits+5*time.Second || took < waits-15*time.Second {
				t.Errorf("%s: went on for %v, want %v", code, took, waits)
			}
			if want := waits < time.Hour; errors.Is(err, refused) != want || err == nil {
				t.Errorf("%s: got %v, want the server's word: %t", code, err, want)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // what fails now and then is no reason
		steps, done := 0, int64(0)
		err := cleaner{tell: func(string) {}}.all(t.Context(), "rows", 10, &done, func() (int, bool, error) {
			if steps++; steps%2 == 1 {
				return 0, false, &pgconn.PgError{Code: "57014"}
			}
			return 1, steps < 400, nil
		})
		if err != nil || done != 200 {
			t.Errorf("got %v after %d rows, want 200", err, done)
		}
	})
}
