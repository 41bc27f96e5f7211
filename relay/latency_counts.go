package relay

import "math"

// LatencyCounts are the counts of a latency's fine buckets, eight to each power of two.
type LatencyCounts [nativeCount]uint64

func (l *latency) counts() LatencyCounts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.native
}

// Quantiles are the durations, in seconds, below which those shares of the observations lie that were made since before was
// taken, within 5 %. False: there were none.
func (c *LatencyCounts) Quantiles(before *LatencyCounts, shares ...float64) (seconds []float64, some bool) {
	total := uint64(0)
	for i := range c {
		total += c[i] - before[i]
	}
	if total == 0 {
		return nil, false
	}
	for _, share := range shares {
		rank := uint64(math.Ceil(share * float64(total)))
		sum := uint64(0)
		for i := range c {
			if sum += c[i] - before[i]; sum >= rank {
				// The middle of the bucket, on its logarithmic scale.
				seconds = append(seconds, math.Exp2((float64(i+nativeLowest)-.5)/nativePer))
				break
			}
		}
	}
	return seconds, true
}
