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

// SameSource compares two names as [Source] makes them, without the timeline: a promotion changes it, and the records
// before it are ours all the same. What has another form is nobody's.
func SameSource(a, b string) bool {
	systemA, numberA, okA := cutSource(a)
	systemB, numberB, okB := cutSource(b)
	return okA && okB && systemA == systemB && numberA == numberB
}

func cutSource(s string) (system, number string, ok bool) {
	parts := strings.Split(s, "/")
	if len(parts) != 3 {
		return "", "", false
	}
	return parts[0], parts[2], true
}
