package meter

import (
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// latencyBuckets are the classic buckets, in seconds, of everything that an event waits for; native histograms are
// exposed beside them.
var latencyBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// latency is a histogram of durations, with classic and native buckets, for what is observed once per event. The
// library's costs a hundred nanoseconds an observation, a tenth of all that the relay does for an event; here a run of
// equal durations, which events of one batch mostly have, costs as much as one.
//
// Hold mu around a run of observations: a scrape then sees all of it or nothing.
type latency struct {
	desc    *prometheus.Desc
	began   *timestamppb.Timestamp
	upper   []float64 // of the classic buckets, in seconds, ascending
	mu      sync.Mutex
	sum     float64
	classic []uint64            // per bucket, not cumulative; one more for the rest
	native  [nativeCount]uint64 // index 0 is the zero bucket

	// Of the last observation: where an equal one goes.
	last                    time.Duration
	lastClassic, lastNative int
}

// The native buckets have the schema that the library chooses for a factor of 1.1: eight to each power of two. Bucket i
// holds what is greater than 2^((i-1)/8) and at most 2^(i/8) seconds. Whatever takes less than a microsecond is in the
// zero bucket; the highest bucket, for more than thirty years, takes what is longer.
const (
	nativeSchema  = 3
	nativePer     = 1 << nativeSchema
	nativeLowest  = -20 * nativePer // 2^-20 s: its bucket is the zero bucket
	nativeHighest = 30 * nativePer
	nativeCount   = nativeHighest - nativeLowest + 1
)

// nativeBounds are the mantissas' bits of 2^(j/8).
var nativeBounds = func() (bits [nativePer]uint64) {
	for j := range bits {
		bits[j] = math.Float64bits(math.Exp2(float64(j)/nativePer)) & mantissa
	}
	return bits
}()

const (
	mantissa     = 1<<52 - 1
	mantissaBits = 52
	exponentBias = 1023
)

func newLatency(name, help string, upper []float64) *latency {
	l := &latency{
		desc: prometheus.NewDesc(name, help, nil, nil), began: timestamppb.Now(),
		upper: upper, classic: make([]uint64, len(upper)+1),
	}
	l.lastClassic, l.lastNative = l.buckets(0)
	return l
}

// observe counts a duration; a negative one counts as zero. The caller holds mu.
func (l *latency) observe(d time.Duration) {
	if d = max(d, 0); d != l.last {
		l.last = d
		l.lastClassic, l.lastNative = l.buckets(d.Seconds())
	}
	l.sum += d.Seconds()
	l.classic[l.lastClassic]++
	l.native[l.lastNative]++
}

func (l *latency) buckets(seconds float64) (classic, native int) {
	for classic < len(l.upper) && seconds > l.upper[classic] {
		classic++
	}
	return classic, nativeIndex(seconds)
}

// nativeIndex is the place in latency.native of a duration that is not negative.
func nativeIndex(seconds float64) int {
	bits := math.Float64bits(seconds)
	i := (int(bits>>mantissaBits) - exponentBias) * nativePer
	for _, bound := range nativeBounds {
		if bits&mantissa <= bound {
			break
		}
		i++
	}
	return min(max(i, nativeLowest), nativeHighest) - nativeLowest
}

func (l *latency) Describe(ch chan<- *prometheus.Desc) { ch <- l.desc }
func (l *latency) Collect(ch chan<- prometheus.Metric) { ch <- l }
func (l *latency) Desc() *prometheus.Desc              { return l.desc }

// Write makes it a prometheus.Metric.
func (l *latency) Write(out *dto.Metric) error {
	l.mu.Lock()
	sum, native := l.sum, l.native
	classic := append([]uint64(nil), l.classic...)
	l.mu.Unlock()

	h := &dto.Histogram{
		SampleSum: &sum, Schema: proto.Int32(nativeSchema),
		ZeroThreshold: proto.Float64(math.Exp2(nativeLowest / nativePer)),
		ZeroCount:     &native[0], CreatedTimestamp: l.began,
	}
	total := uint64(0)
	for i, upper := range l.upper {
		total += classic[i]
		h.Bucket = append(h.Bucket, &dto.Bucket{UpperBound: proto.Float64(upper), CumulativeCount: proto.Uint64(total)})
	}
	total += classic[len(l.upper)]
	h.SampleCount = &total

	// Spans are runs of buckets, each with its distance from the end of the one before; counts are differences.
	var before uint64
	end := 0
	for i, n := range native[1:] {
		if n == 0 {
			continue
		}
		index := i + 1 + nativeLowest
		if len(h.PositiveSpan) > 0 && index == end {
			*h.PositiveSpan[len(h.PositiveSpan)-1].Length++
		} else {
			h.PositiveSpan = append(h.PositiveSpan,
				&dto.BucketSpan{Offset: proto.Int32(int32(index - end)), Length: proto.Uint32(1)})
		}
		h.PositiveDelta = append(h.PositiveDelta, int64(n-before))
		before, end = n, index+1
	}
	if len(h.PositiveSpan) == 0 && native[0] == 0 {
		// An empty span says that it is a native one.
		h.PositiveSpan = []*dto.BucketSpan{{Offset: proto.Int32(0), Length: proto.Uint32(0)}}
	}
	out.Histogram = h
	return nil
}

// LatencyCounts are the counts of a latency's fine buckets, eight to each power of two.
type LatencyCounts [nativeCount]uint64

func (l *latency) counts() LatencyCounts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.native
}

// Quantiles are the durations, in seconds, below which those shares of the observations lie that were made since before
// was taken, within 5 %. False: there were none.
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
