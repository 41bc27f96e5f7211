package settle

import (
	"time"

	"github.com/cdc-relay/cdc-relay/config"
)

// tally counts events and dead letters of a window that moves in steps of a sixtieth.
type tally struct {
	window    time.Duration
	dead, all [tallySteps]int64
	origin    time.Time // of the steps, by the clock that is never set
	step      int64     // that counts now, since origin
}

const tallySteps = 60

// reset forgets what was counted.
func (t *tally) reset() { *t = tally{window: t.window} }

// add counts so many of both; the dead letters are among all.
func (t *tally) add(now time.Time, dead, all int64) {
	t.move(now)
	t.dead[t.step%tallySteps] += dead
	t.all[t.step%tallySteps] += all
}

func (t *tally) move(now time.Time) {
	if t.origin.IsZero() {
		t.origin = now
	}
	step := int64(now.Sub(t.origin)) / max(int64(t.window)/tallySteps, 1)
	for n := max(t.step+1, step-tallySteps+1); n <= step; n++ {
		t.dead[n%tallySteps], t.all[n%tallySteps] = 0, 0
	}
	t.step = max(t.step, step)
}

// sum returns the counts of the window that ends now.
func (t *tally) sum(now time.Time) (dead, all int64) {
	t.move(now)
	for i := range t.dead {
		dead, all = dead+t.dead[i], all+t.all[i]
	}
	return dead, all
}

// tooMany reports whether one more dead letter is one too many.
func (t *tally) tooMany(now time.Time, limits config.Breaker) bool {
	dead, all := t.sum(now)
	return dead+1 > int64(limits.Count) && float64(dead+1) > limits.Ratio*float64(all+1)
}
