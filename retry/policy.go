package retry

import "time"

// Policy decides when an event that failed by its own fault is retried, and when it becomes a dead letter. Outages
// spend no attempt.
type Policy struct {
	MaxAttempts int // attempts before an event is dead; at least 1
	Backoff     Backoff
	Schedule    []time.Duration // explicit pauses instead of Backoff; the last one repeats
}

// Next returns the pause after the given number of failed attempts, from 1, and whether there is another attempt. rnd
// is a random number in [0, 1).
func (p Policy) Next(attempts int, rnd float64) (pause time.Duration, again bool) {
	if attempts >= p.MaxAttempts {
		return 0, false
	}
	return p.Pause(attempts, rnd), true
}

// Pause returns the pause after the given number of failed attempts, from 1, even if none is left.
func (p Policy) Pause(attempts int, rnd float64) time.Duration {
	if n := len(p.Schedule); n > 0 {
		return p.Schedule[min(attempts, n)-1]
	}
	return p.Backoff.Delay(attempts, rnd)
}
