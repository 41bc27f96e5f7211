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
)

// TuneMemory sets the garbage collector for a process whose memory is the window and requests made of it, unless the
// environment does, by GOGC and GOMEMLIMIT. The limit is a soft one: near it garbage is collected sooner.
func TuneMemory(cfg config.Config) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		window := int64(cfg.Limits.InFlightBytes)
		debug.SetMemoryLimit(window + window/4 + baseMemory)
	}
}
