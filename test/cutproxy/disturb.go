package cutproxy

import (
	"math/rand/v2"
	"time"
)

// disturbPause is the time between two looks at the dice: long enough for a client to connect again.
const disturbPause = 15 * time.Millisecond

// Disturb breaks connections in every way until done is closed, with time in between to connect again, and now and then
// does something else.
func Disturb(p *Plain, done <-chan struct{}, other func()) {
	dice := rand.New(rand.NewPCG(1, 2))
	pace := time.NewTicker(disturbPause)
	defer pace.Stop()
	for turn := 0; ; turn++ {
		select {
		case <-done:
			return
		case <-pace.C:
		}
		p.LoseAnswers(0)
		p.Tear(0)
		if turn%3 != 0 {
			continue
		}
		switch dice.IntN(4) {
		case 0:
			p.LoseAnswers(1)
		case 1:
			p.Tear(1)
		case 2:
			p.Cut()
		case 3:
			other()
		}
	}
}
