// Package early sets the garbage collector of a relay before most other packages are initialised: they allocate 4 MB,
// for which it would run twice, 5 of the 20 ms until main. Go initialises the package with the least import path first
// of those whose own imports are ready, and this one imports little. Only the program's main package may import it.
// It is tested there: run_memory_test.go.
package early

import (
	"os"
	"runtime/debug"
	"slices"
)

// percent lets a start throw away what it needs only once, a few MB, and collect it later: under it the heap may have
// 16 MB before anything is collected. A run has that memory for its window afterwards.
const percent = 400

// What follows the start is set by cli.TuneMemory. Other commands begin as Go programs do: nothing sets it anew there.
func init() {
	if os.Getenv("GOGC") == "" && slices.Contains(os.Args[1:], "run") {
		debug.SetGCPercent(percent)
	}
}
