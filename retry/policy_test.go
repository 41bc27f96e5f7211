package retry

import (
	"testing"
	"time"
)

// Breaks it catches: one attempt too many or too few; a schedule that ends instead of repeating its last pause.
func TestPolicySpendsExactlyItsAttempts(t *testing.T) {
	grow := Policy{MaxAttempts: 3, Backoff: Backoff{Initial: time.Second, Max: time.Minute}}
	plan := Policy{MaxAttempts: 5, Schedule: []time.Duration{time.Minute, 5 * time.Minute}}
	for _, row := range []struct {
		policy   Policy
		attempts int
		pause    time.Duration
		again    bool
	}{
		{grow, 1, time.Second, true}, {grow, 2, 2 * time.Second, true}, {grow, 3, 0, false}, {grow, 9, 0, false},
		{plan, 1, time.Minute, true}, {plan, 2, 5 * time.Minute, true}, {plan, 4, 5 * time.Minute, true}, {plan, 5, 0, false},
		{Policy{MaxAttempts: 1}, 1, 0, false},
	} {
		pause, again := row.policy.Next(row.attempts, 0)
		if pause != row.pause || again != row.again {
			t.Errorf("after %d attempts of %d: got %v, %t; want %v, %t", row.attempts, row.policy.MaxAttempts, pause, again,
				row.pause, row.again)
		}
	}
}
