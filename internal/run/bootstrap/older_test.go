package bootstrap

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
)

// crowd is a table with so many rows that wait; counting all of them takes a while.
type crowd struct {
	Tables
	rows  int64
	takes time.Duration
	whole int // times that all were counted
}

func (c *crowd) CountUnrecorded(ctx context.Context, limit int64) (int64, error) {
	if limit > 0 {
		return min(c.rows, limit), nil
	}
	c.whole++
	select {
	case <-time.After(c.takes):
		return c.rows, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Breaks it catches: a halt that does not say how many rows wait; a count that a start waits for without end, or that a
// halted relay makes at each of its looks. Seen to fail with no bound, with each look counting, and with the number
// kept forever.
func TestTooManyOlderRowsAreCountedOnceInAWhileAndNotForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tables := &crowd{rows: 1234, takes: time.Second}
		s := Setup{Config: config.Default(), Store: tables, Older: new(OlderRows)}
		s.Config.Outbox.CatchUpMax = 1000
		want := func(text string, whole int) {
			t.Helper()
			if err := s.countOlderRows(t.Context()); err == nil || !strings.Contains(err.Error(), text) ||
				tables.whole != whole {
				t.Errorf("got %v after %d counts, want %q after %d", err, tables.whole, text, whole)
			}
		}
		want("holds 1234 rows that are not published", 1)
		time.Sleep(olderAgain / 2)
		tables.rows = 5678
		want("holds 1234 rows", 1)
		time.Sleep(olderAgain)
		want("holds 5678 rows", 2)
		time.Sleep(2 * olderAgain)
		tables.takes = time.Hour
		began := time.Now()
		want("holds more than outbox.catch_up_max = 1000 rows", 3)
		if took := time.Since(began); took != olderPatience {
			t.Errorf("counting: got %v, want %v at most", took, olderPatience)
		}
		want("holds more than outbox.catch_up_max = 1000 rows", 3)
		tables.rows = 1000
		if err := s.countOlderRows(t.Context()); err != nil {
			t.Errorf("as many as allowed: got %v", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		tables.rows = 2000
		time.Sleep(2 * olderAgain)
		if err := s.countOlderRows(ended); err == nil || strings.Contains(err.Error(), "catch_up_max") {
			t.Errorf("a start that is ended: got %v, want no halt", err)
		}
	})
}
