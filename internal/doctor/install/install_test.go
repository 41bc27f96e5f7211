package install

import (
	"strings"
	"testing"
)

// A person runs what the dry run prints. Break it catches: a slot that a promotion loses, where the relay's own would
// be kept. Seen to fail with the same statement for all releases.
func TestPrintedSlotIsTheRelays(t *testing.T) {
	for release, want := range map[int]bool{14: false, 16: false, 17: true, 18: true} {
		if got := slotSQL("s", release); strings.Contains(got, "failover => true") != want {
			t.Errorf("release %d: got %s, want failover %t", release, got, want)
		}
	}
}
