package cli

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"

	"github.com/cdc-relay/cdc-relay/config"
)

const (
	// gcPercent lets a large heap grow by a fifth of what is alive before the garbage is collected. What is alive is the
	// window, and little beside it is thrown away, so collecting five times as often as by default costs little. See
	// docs/sizing.md.
	gcPercent = 20
	// gcFloor is the heap size below which nothing is collected. Without it a relay at a steady pace, with 4 MB alive,
	// collects several times a second for a megabyte each time.
	gcFloor = 12 << 20
	// gcMost makes gcFloor the least goal of the runtime, which is 4 MiB at 100 %.
	gcMost = 100 * gcFloor / (4 << 20)
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
		followHeap()
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(needs)
	}
}

// followHeap adapts the collector to the heap after each collection, from the first call on.
var followHeap = sync.OnceFunc(func() {
	debug.SetGCPercent(gcMost)
	afterEachCollection(func() { debug.SetGCPercent(percentFor(readHeap())) })
})

// afterEachCollection calls do, a little after each one, until the process ends.
func afterEachCollection(do func()) {
	garbage := new(*byte) // a pointer: such an object shares its memory with no other that lives longer
	runtime.AddCleanup(garbage, func(do func()) {
		do()
		afterEachCollection(do)
	}, do)
}

// readHeap returns what the last collection found alive, in bytes, and what it scanned beside that. The runtime lets
// the heap grow by a share of the sum.
func readHeap() (alive, roots uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"},
		{Name: "/gc/scan/globals:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64() + samples[2].Value.Uint64()
}

// percentFor returns the GOGC with which the next collection begins at gcFloor, or later if more than that is needed
// anyway.
func percentFor(alive, roots uint64) int {
	if alive >= gcFloor {
		return gcPercent
	}
	return int(min(max(100*(gcFloor-alive)/max(alive+roots, 1), gcPercent), gcMost))
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
