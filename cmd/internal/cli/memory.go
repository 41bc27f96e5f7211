package cli

import (
	"os"
	"runtime/debug"

	"github.com/cdc-relay/cdc-relay/config"
)

const (
	// gcPercent lets the heap grow by a fifth of what is alive before the garbage is collected. What is alive is the
	// window, and little beside it is thrown away, so collecting five times as often as by default costs little. See
	// docs/sizing.md.
	gcPercent = 20
	// baseMemory is needed besides the window: code, tables, connections, buffers.
	baseMemory = 32 << 20
	// furtherRelay is needed of it by each relay of the process but the first: docs/many-outboxes.md has the measurement.
	furtherRelay = 2 << 20
)

// TuneMemory sets the garbage collector for a process whose memory is the window and requests made of it, unless the
// environment does, by GOGC and GOMEMLIMIT. The limit is a soft one: near it garbage is collected sooner.
func TuneMemory(cfg config.Config) { TuneMemoryTo(MemoryOf(cfg)) }

// TuneMemoryTo does so for a process that needs so many bytes.
func TuneMemoryTo(needs int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(needs)
	}
}

// MemoryOf is the limit for a process with a relay of each configuration: their windows, a quarter of them for
// requests, and what is needed beside them.
func MemoryOf(relays ...config.Config) (bytes int64) {
	bytes = baseMemory + int64(max(len(relays)-1, 0))*furtherRelay
	for _, cfg := range relays {
		window := int64(cfg.Limits.InFlightBytes)
		bytes += window + window/4
	}
	return bytes
}
