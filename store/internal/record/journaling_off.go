//go:build bench_nojournal

package record

// Journaling: this build, for a benchmark, records nothing.
const Journaling = false
