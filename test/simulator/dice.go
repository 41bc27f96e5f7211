package simulator

import "time"

// dice are a run of choices that depend on nothing but the seed and what the choice is about: the third commit of the
// second process is slow or is not, whatever else happened before it. One sequence for everything would let the Go
// scheduler, which no seed governs, decide which call gets which number.
type dice struct{ state uint64 }

// The subjects of choices.
const (
	aboutProfile uint64 = iota + 1
	aboutWriter
	aboutFate
	aboutCall
	aboutStream
	aboutRequest
	aboutEvent
	aboutCluster
	aboutServer
	aboutTail
	aboutDeath
	aboutPeople
	aboutEnds
	aboutLosses
	aboutSequence
	aboutKind
	aboutAppend
	aboutPost
	aboutQueue
	aboutDeletion
	aboutSpool
	aboutLatency
	aboutSources
)

// mixed spreads the bits of v over the whole word (the finalizer of SplitMix64).
func mixed(v uint64) uint64 {
	v ^= v >> 30
	v *= 0xbf58476d1ce4e5b9
	v ^= v >> 27
	v *= 0x94d049bb133111eb
	return v ^ v>>31
}

func newDice(seed uint64, about ...uint64) *dice {
	d := &dice{state: mixed(seed + 0x9e3779b97f4a7c15)}
	for _, a := range about {
		d.state = mixed(d.state ^ (a+1)*0x9e3779b97f4a7c15)
	}
	return d
}

// about hashes a name into a subject.
func about(name string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return h
}

func (d *dice) next() uint64 {
	d.state += 0x9e3779b97f4a7c15
	return mixed(d.state)
}

// below is a number from 0 to n-1; 0 when n is not positive.
func (d *dice) below(n int) int {
	if n <= 0 {
		return 0
	}
	return int(d.next() % uint64(n))
}

// between is a number from least to most.
func (d *dice) between(least, most int) int { return least + d.below(most-least+1) }

func (d *dice) chance(p float64) bool { return float64(d.next()>>11)/(1<<53) < p }

// pause is a duration from least to most.
func (d *dice) pause(least, most time.Duration) time.Duration {
	return least + time.Duration(d.next()%uint64(most-least+1))
}

// one of the values.
func one[T any](d *dice, values ...T) T { return values[d.below(len(values))] }
