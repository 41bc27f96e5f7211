// Package retry computes when something is retried. It does no I/O and has no clock.
package retry

import "time"

// Backoff is a growing pause between attempts: Initial, doubled with each further attempt, at most Max, plus a random
// share of up to Jitter, so that several processes do not retry in step.
type Backoff struct {
	Initial, Max time.Duration
	Jitter       float64 // 0 to 1
}

// Delay returns the pause after the attempt-th failure, counted from 1. rnd is a random number in [0, 1).
func (b Backoff) Delay(attempt int, rnd float64) time.Duration {
	d := b.Initial
	for range attempt - 1 {
		if d >= b.Max/2 { // before it can overflow
			d = b.Max
			break
		}
		d *= 2
	}
	d = min(d, b.Max)
	return d + time.Duration(float64(d)*b.Jitter*rnd)
}
