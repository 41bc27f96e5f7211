package main

// switches is the package that woven code asks which of its changes is on. It exists only during a run, and is handed
// to the compiler with the woven files.
const switches = module + "/test/mutate/mutant"

// A file, not a variable of the environment, says which one is on: it reaches every process that a test starts.
const switchesText = `package mutant

import (
	"cmp"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
)

// Sites is how many there are.
const Sites = %d

var (
	on      = -1
	tracing bool
	trace   *os.File
	reached [Sites + 1]atomic.Bool
)

// "5": site 5 is changed. "trace FILE": none, and FILE gets the number of each site that is reached.
func init() {
	text, err := os.ReadFile(%q)
	if err != nil {
		return
	}
	said := strings.TrimSpace(string(text))
	if path, asked := strings.CutPrefix(said, "trace "); asked {
		if trace, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666); err == nil {
			tracing = true
		}
		return
	}
	if on, err = strconv.Atoi(said); err != nil {
		on = -1
	}
}

func On(id int) bool {
	if tracing {
		note(id)
	}
	return id == on
}

//go:noinline
func note(id int) {
	if !reached[id].Load() && !reached[id].Swap(true) {
		_, _ = trace.WriteString(strconv.Itoa(id) + "\n")
	}
}

func Err(id int, err error) error {
	if On(id) {
		return nil
	}
	return err
}

func Text[T ~string](id int, s T) T {
	if On(id) {
		return ""
	}
	return s
}

// A bound counts as reached when it is met: only then does it make a difference.
func Less[T cmp.Ordered](id int, a, b T) bool         { return a < b || a == b && On(id) }
func Greater[T cmp.Ordered](id int, a, b T) bool      { return a > b || a == b && On(id) }
func LessEqual[T cmp.Ordered](id int, a, b T) bool    { return a < b || a == b && !On(id) }
func GreaterEqual[T cmp.Ordered](id int, a, b T) bool { return a > b || a == b && !On(id) }

func Plus[T ~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float64](id int, n T) T {
	if On(id) {
		return n + 1
	}
	return n
}
`
