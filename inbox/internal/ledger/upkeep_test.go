package ledger

import (
	"testing"
	"time"
)

// A table is looked through once in a fourteenth of the time for which ids are kept, in pieces of 1 MB where that is
// seldom enough. Seen to fail with pieces of one size, and with no bound of a piece.
func TestALapOfForgettingFitsInTheTimeThatIDsAreKept(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		size   int64 // blocks of 8 KB
		keep   time.Duration
		blocks int64
		pause  time.Duration
	}{
		{0, 14 * day, 128, time.Minute},
		{100_000, 14 * day, 128, time.Minute},                       // 0.8 GB, in 13 hours
		{10_000_000, 14 * day, 128, day / 78_125},                   // 80 GB: 1 MB a second
		{100_000_000, 14 * day, 289, 250 * time.Millisecond},        // 800 GB
		{4_000_000_000, 14 * day, 2048, 250 * time.Millisecond},     // 32 TB, the largest: no more than 64 MB a second
		{1_000, time.Second, 1000, 250 * time.Millisecond},          // a test's
		{1_000, 0, 1000, 250 * time.Millisecond},                    // nothing is kept
		{1_000_000, 292 * 365 * day, 128, time.Minute},              // permanently
		{1_000, 14 * time.Hour, 128, time.Minute},                   // seven pieces an hour
		{128_000, 14 * time.Hour, 128, 3600 * time.Millisecond},     // a thousand
		{128_000_000, 14 * time.Hour, 2048, 250 * time.Millisecond}, // too much for an hour
	} {
		if blocks, pause := forgetting(c.size, c.keep); blocks != c.blocks || pause != c.pause {
			t.Errorf("%d blocks, kept for %v: got %d each %v, want %d each %v", c.size, c.keep, blocks, pause, c.blocks, c.pause)
		}
	}
}
