//go:build bench_nojournal

package store

// Journaling: this build, for a benchmark, records nothing.
const Journaling = false
