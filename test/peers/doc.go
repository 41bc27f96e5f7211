// Package peers runs the relay and others that do its work through the same faults, on the same load, servers and
// topics, and has one judge say what came of it: `make peers`. What the figures mean stands in docs/benchmarks.md.
//
// Everything of it is in its tests; a usual `go test` runs the relay and a polling worker through one kill.
package peers
