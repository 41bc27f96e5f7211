//go:build !bench_nojournal

package record

// Journaling is false only in the build with which `make bench` measures what the journal costs: it loses and doubles
// events, and is for nothing else.
const Journaling = true
