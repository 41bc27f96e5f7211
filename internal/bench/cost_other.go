//go:build !linux

package bench

import "time"

// What the process cost is measured on Linux only; 0 is not shown.

func cpuTime() time.Duration { return 0 }
func resetPeak()             {}
func peakMiB() float64       { return 0 }
