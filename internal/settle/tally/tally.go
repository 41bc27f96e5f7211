// Package tally counts events and dead letters of the latest while, for the breaker. It has no clock and decides
// nothing but whether a limit is passed. Tested with the breaker, in package relay.
package tally

import (
	"time"

	"github.com/cdc-relay/cdc-relay/config"
)

// Tally counts events and dead letters of a window that moves in steps of a sixtieth.
type Tally struct {
	Window    time.Duration
	dead, all [tallySteps]int64
	step      int64 // that counts now, since the zero time
}

const tallySteps = 60

// Reset forgets what was counted.
func (t *Tally) Reset() { *t = Tally{Window: t.Window} }

// Add counts so many of both; the dead letters are among all.
func (t *Tally) Add(now time.Time, dead, all int64) {
	t.move(now)
	t.dead[t.step%tallySteps] += dead
	t.all[t.step%tallySteps] += all
}

func (t *Tally) move(now time.Time) {
	step := now.UnixNano() / max(int64(t.Window)/tallySteps, 1)
	for n := max(t.step+1, step-tallySteps+1); n <= step; n++ {
		t.dead[n%tallySteps], t.all[n%tallySteps] = 0, 0
	}
	t.step = max(t.step, step)
}

// Sum is what the window that ends now holds.
func (t *Tally) Sum(now time.Time) (dead, all int64) {
	t.move(now)
	for i := range t.dead {
		dead, all = dead+t.dead[i], all+t.all[i]
	}
	return dead, all
}

// TooMany reports whether one more dead letter is one too many.
func (t *Tally) TooMany(now time.Time, limits config.Breaker) bool {
	dead, all := t.Sum(now)
	return dead+1 > int64(limits.Count) && float64(dead+1) > limits.Ratio*float64(all+1)
}
