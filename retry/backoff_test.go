package retry

import (
	"math"
	"testing"
	"time"
)

// Seen to fail with the last doubling not bounded.
func TestDelayDoublesUpToMax(t *testing.T) {
	b := Backoff{Initial: 50 * time.Millisecond, Max: 300 * time.Millisecond}
	for attempt, want := range map[int]time.Duration{
		1: 50 * time.Millisecond, 2: 100 * time.Millisecond, 3: 200 * time.Millisecond, 4: 300 * time.Millisecond,
		5: 300 * time.Millisecond,
	} {
		if got := b.Delay(attempt, 0.9); got != want {
			t.Errorf("Delay(%d): got %v, want %v", attempt, got, want)
		}
	}
}

// Seen to fail with twice the jitter.
func TestDelayJitterStaysWithinItsFraction(t *testing.T) {
	b := Backoff{Initial: time.Second, Max: time.Minute, Jitter: 0.2}
	if got, want := b.Delay(1, 0), time.Second; got != want {
		t.Errorf("without luck: got %v, want %v", got, want)
	}
	if got := b.Delay(1, 0.999999); got <= 1190*time.Millisecond || got > 1200*time.Millisecond {
		t.Errorf("with the most luck: got %v, want just below 1.2s", got)
	}
}

// Seen to fail with the bound looked at after the doubling.
func TestDelayNeverOverflows(t *testing.T) {
	b := Backoff{Initial: time.Hour, Max: math.MaxInt64 / 6 * 5, Jitter: 0.2}
	for attempt := 1; attempt < 100; attempt++ {
		if got := b.Delay(attempt, 0.5); got <= 0 {
			t.Errorf("Delay(%d): got %v, want a positive pause", attempt, got)
		}
	}
}
