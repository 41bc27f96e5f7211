package retry

import "time"

// Policy decides when an event that failed by its own fault is tried again, and when it is given up. Outages are not
// its fault and spend no attempt.
type Policy struct {
	MaxAttempts int // attempts before an event is dead; at least 1
	Backoff     Backoff
	Schedule    []time.Duration // explicit pauses instead of Backoff; the last one repeats
}

// Next is the pause after the given number of failed attempts, from 1; false: the event is given up. rnd is a random
// number in [0, 1).
func (p Policy) Next(attempts int, rnd float64) (pause time.Duration, again bool) {
	if attempts >= p.MaxAttempts {
		return 0, false
	}
	return p.Pause(attempts, rnd), true
}

// Pause is the pause after the given number of failed attempts, from 1, whatever is left of them.
func (p Policy) Pause(attempts int, rnd float64) time.Duration {
	if n := len(p.Schedule); n > 0 {
		return p.Schedule[min(attempts, n)-1]
	}
	return p.Backoff.Delay(attempts, rnd)
}
