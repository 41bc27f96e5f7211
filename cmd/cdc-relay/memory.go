package main

import (
	"os"
	"runtime/debug"

	"github.com/cdc-relay/cdc-relay/config"
)

const (
	// gcPercent lets the heap grow by half of what is alive before the garbage is collected. What is alive is the window,
	// and what is garbage is mostly read buffers without a pointer, so collecting twice as often as by default costs little.
	gcPercent = 50
	// besideWindow is what the process needs beside the window: requests being sent, the copies of the clients, buffers.
	besideWindow = 48 << 20
)

// tuneMemory sets the garbage collector for a process whose memory is the window, unless the environment does, by GOGC and
// GOMEMLIMIT. The limit is a soft one: near it garbage is collected sooner.
func (a *app) tuneMemory(cfg config.Config) {
	if !a.has("GOGC") {
		debug.SetGCPercent(gcPercent)
	}
	if !a.has("GOMEMLIMIT") {
		debug.SetMemoryLimit(int64(cfg.Limits.InFlightBytes) + besideWindow)
	}
}

func (a *app) has(variable string) bool { return os.Getenv(variable) != "" }
