package kafka

import (
	"sync"
	"time"
)

// A leader answers a request as a whole, when the in-sync replicas have all of its batches. One partition whose
// follower is frozen so keeps the answers of all others away, for up to the request's time-out. So a request that
// others may wait for is given up when its answer takes unusually long; its batches go again alone, each on a
// connection of its own. The broker knows them again, and answers those that are in order at once.
//
// That must not become a load of its own for a broker that is merely slow. Patience is several times what is usual; it
// doubles with each request that is given up, and none is given up after another one until the broker has answered
// something. What was given up is sent once more, and never given up again.
const (
	leastPatience = 250 * time.Millisecond // pauses of a broker's garbage collection are shorter
	mostPatience  = 4 * time.Second
	// usualTimes is how many times longer than usual is unusually long.
	usualTimes = 4
	// usualShare is the part that one answer has in what is usual.
	usualShare = 8
	// slowestLink is how many bytes per second a request has to arrive at least, for which it gets time besides.
	slowestLink = 8 << 20
	// slowestAppend bounds how long a broker may take for each batch, one by one: the first to a partition makes files.
	slowestAppend = 2 * time.Millisecond
	// calm is how long nothing must have been given up for the patience to be as small as at first.
	calm = 30 * time.Second
)

// pace is how long a broker's answers usually take, and what follows from that.
type pace struct {
	mu       sync.Mutex
	usual    time.Duration // a moving average; 0 before the first
	gaveUp   time.Time     // when a request was given up last
	doubled  int           // how many times, one after the other
	answered bool          // something, since then
}

// patience is for how long the answer to a request of so many batches and bytes is waited for after it was sent; 0
// means until it comes or its time-out.
func (p *pace) patience(batches, bytes int, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.gaveUp) > calm {
		p.doubled = 0
	} else if !p.answered {
		return 0
	}
	least := min(leastPatience<<p.doubled, mostPatience)
	return max(least, usualTimes*p.usual) + time.Duration(bytes)*time.Second/slowestLink +
		time.Duration(batches)*slowestAppend
}

// took notes that the broker has answered. Only what a request took that others may wait for says what is usual: one
// that goes alone does so because it is slow.
func (p *pace) took(d time.Duration, alone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answered = true
	if alone {
		return
	}
	if p.usual == 0 {
		p.usual = d
	}
	p.learn(d)
}

// giveUp notes that a request was given up after that time.
func (p *pace) giveUp(after time.Duration, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gaveUp, p.answered = now, false
	p.doubled = min(p.doubled+1, 8)
	p.learn(after)
}

func (p *pace) learn(d time.Duration) { p.usual += (d - p.usual) / usualShare }
