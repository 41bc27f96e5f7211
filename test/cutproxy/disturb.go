package cutproxy

import (
	"math/rand/v2"
	"time"
)

const (
	// disturbPause is the time between two looks at the dice: long enough for a client to connect again.
	disturbPause = 15 * time.Millisecond
	// mostInVain is how often what a client tries is broken before it has come any further. Then it is left alone until it
	// has: a machine can be so slow that nothing fits between two breaks.
	mostInVain = 20
)

// Disturb breaks connections in every way until done is closed, with time in between to connect again, and now and then
// does something else. Progress is how far the client has come.
func Disturb(p *Plain, progress func() int64, done <-chan struct{}, other func()) {
	dice := rand.New(rand.NewPCG(1, 2))
	pace := time.NewTicker(disturbPause)
	defer pace.Stop()
	vain, before := 0, progress()
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
		if now := progress(); now != before {
			vain, before = 0, now
		}
		if vain++; vain > mostInVain {
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
