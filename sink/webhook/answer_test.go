package webhook

import (
	"testing"
	"time"
)

// Breaks it catches: a date that is not read, a wait without bound, one below zero, text taken for a number. Seen to
// fail with dates not read, and without the bounds.
func TestRetryAfterIsSecondsOrADate(t *testing.T) {
	now := time.Date(2026, 11, 21, 16, 36, 32, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "0": 0, "-3": 0, "3": 3 * time.Second, "99999999999999": longestSilence, "soon": 0, "1.5": 0,
		"Sat, 21 Nov 2026 16:36:42 GMT": 10 * time.Second, "Sat, 21 Nov 2026 16:00:00 GMT": 0,
		"Fri, 31 Dec 2027 23:59:59 GMT": longestSilence,
	} {
		if got := retryAfter(value, now); got != want {
			t.Errorf("%q: got %v, want %v", value, got, want)
		}
	}
}
