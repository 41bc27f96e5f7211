package meter

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/testing/protocmp"
)

// The library's histogram is the judge. Fails when a bound belongs to the wrong side, when the memory of the last
// observation is not renewed, and when spans or differences are counted from the wrong end. Seen to fail with a value
// that equals a bound put above it.
func TestLatencyHistogramIsTheLibrarysHistogram(t *testing.T) {
	durations := []time.Duration{
		0, 1, 500 * time.Microsecond, time.Millisecond, time.Second, 2 * time.Second, 2*time.Second + 1, time.Minute,
		-time.Second, 3, 3, 3, 400 * 24 * time.Hour,
	}
	for _, upper := range latencyBuckets {
		durations = append(durations, time.Duration(upper*1e9), time.Duration(upper*1e9)+1, time.Duration(upper*1e9)-1)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		durations = append(durations, time.Duration(math.Exp(rnd.Float64()*25)))
	}
	for n := range []int{0, 1, len(durations)} {
		judge := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "x", Help: "y", Buckets: latencyBuckets,
			NativeHistogramBucketFactor: 1.1, NativeHistogramZeroThreshold: math.Exp2(-20)})
		ours := newLatency("x", "y", latencyBuckets)
		for i, d := range durations {
			if i < n || n == 2 {
				judge.Observe(max(d, 0).Seconds())
				ours.observe(d)
			}
		}
		var want, got dto.Metric
		if err := judge.Write(&want); err != nil {
			t.Fatal(err)
		}
		if err := ours.Write(&got); err != nil {
			t.Fatal(err)
		}
		want.Histogram.CreatedTimestamp, got.Histogram.CreatedTimestamp = nil, nil
		if math.Abs(*want.Histogram.SampleSum-*got.Histogram.SampleSum) > 1e-6*max(1, *want.Histogram.SampleSum) {
			t.Errorf("sum %v, want %v", *got.Histogram.SampleSum, *want.Histogram.SampleSum)
		}
		want.Histogram.SampleSum = got.Histogram.SampleSum
		// The library bridges small gaps with empty buckets, so spans may differ where the buckets do not.
		if diff := cmp.Diff(buckets(want.Histogram), buckets(got.Histogram)); diff != "" {
			t.Errorf("native buckets differ (-library +ours):\n%s", diff)
		}
		want.Histogram.PositiveSpan, want.Histogram.PositiveDelta = got.Histogram.PositiveSpan, got.Histogram.PositiveDelta
		if diff := cmp.Diff(&want, &got, protocmp.Transform()); diff != "" {
			t.Errorf("differs (-library +ours):\n%s", diff)
		}
	}
}

// buckets are the native buckets that hold something.
func buckets(h *dto.Histogram) map[int32]int64 {
	found := map[int32]int64{}
	index, at, n := int32(0), 0, int64(0)
	for _, span := range h.PositiveSpan {
		index += span.GetOffset()
		for range span.GetLength() {
			n += h.PositiveDelta[at]
			if n != 0 {
				found[index] = n
			}
			at++
			index++
		}
	}
	return found
}

// Fails when an observation allocates. Seen to fail with each observation kept.
func TestLatencyHistogramDoesNotAllocate(t *testing.T) {
	l, d := newLatency("x", "y", latencyBuckets), time.Duration(0)
	if n := testing.AllocsPerRun(100, func() { l.observe(d); d += 12345 }); n != 0 {
		t.Errorf("%v allocations an observation", n)
	}
}

func BenchmarkLatency(b *testing.B) {
	l := newLatency("x", "y", latencyBuckets)
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "x", Help: "y", Buckets: latencyBuckets,
		NativeHistogramBucketFactor: 1.1})
	b.Run("ours, all different", func(b *testing.B) {
		for d := time.Duration(0); b.Loop(); d += 1000 {
			l.observe(d)
		}
	})
	b.Run("ours, all equal", func(b *testing.B) {
		for b.Loop() {
			l.observe(time.Millisecond)
		}
	})
	b.Run("the library's", func(b *testing.B) {
		for d := time.Duration(0); b.Loop(); d += 1000 {
			h.Observe(d.Seconds())
		}
	})
}
