package outbox

import (
	"fmt"
	"strings"
)

// Source names where records come from, in each record's x-outbox-source: the server's system identifier, its timeline
// when they were sent, and the number that the state gives to (slot, table).
func Source(system string, timeline int32, number int32) string {
	return fmt.Sprintf("%s/%d/%d", system, timeline, number)
}

// SameSource reports whether a is one of the names that [Source] makes, without the timeline: a promotion changes it,
// and the records before it are ours all the same. Any other form is of no known source.
func SameSource(a string, names ...string) bool {
	system, _, number, ok := CutSource(a)
	if !ok {
		return false
	}
	for _, name := range names {
		if s, _, n, ok := CutSource(name); ok && s == system && n == number {
			return true
		}
	}
	return false
}

// CutSource returns the parts of a name that [Source] makes; not ok: it has another form.
func CutSource(s string) (system, timeline, number string, ok bool) {
	system, rest, _ := strings.Cut(s, "/")
	timeline, number, ok = strings.Cut(rest, "/")
	return system, timeline, number, ok && !strings.Contains(number, "/")
}
