package replication

import (
	"strings"
	"testing"
)

// Breaks it catches: WAL said to be removed of a slot that was given up for another reason, and a reason of the server
// that is kept from the reader. Seen to fail with one text for all reasons.
func TestReasonOfALostSlotIsTheServersOwn(t *testing.T) {
	for reason, removed := range map[string]bool{
		"wal_removed": true, "idle_timeout": false, "rows_removed": false, "wal_level_insufficient": false, "new_one": false,
	} {
		got := Invalidated(reason)
		if !strings.Contains(got, reason) || strings.Contains(got, "removed WAL") != removed {
			t.Errorf("%s: got %q, want the reason, and WAL that was removed: %t", reason, got, removed)
		}
	}
	if got := Invalidated(""); !strings.Contains(got, "without a reason") {
		t.Errorf("no reason: got %q, want that it is not known", got)
	}
}
