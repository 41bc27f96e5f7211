package bench

import (
	"math"
	"slices"
)

// Summary is one figure over several runs.
type Summary struct{ Median, Min, Max float64 }

// Summarize takes the figure of each run; there is at least one.
func Summarize(runs []float64) Summary {
	sorted := slices.Sorted(slices.Values(runs))
	n := len(sorted)
	return Summary{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Min: sorted[0], Max: sorted[n-1]}
}

// Quantile is the smallest value that at least the share q of all do not exceed.
func Quantile(sorted []float64, q float64) float64 {
	return sorted[min(len(sorted)-1, max(0, int(math.Ceil(q*float64(len(sorted))))-1))]
}
