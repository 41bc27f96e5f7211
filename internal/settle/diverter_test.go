package settle

import (
	"strings"
	"testing"
)

// Break it catches: a reason that grows with each restart, or that is no one's. Seen to fail with what was added before
// kept, with the code kept, and with "events were parked for it before this start", which names no cause and no remedy.
func TestReasonFromBeforeAStartIsSaidOnce(t *testing.T) {
	const why = "topic t does not exist"
	said := beforeStart(inTrouble + ": " + why)
	if want := why + before; said != want {
		t.Errorf("after a restart: got %q, want %q", said, want)
	}
	if again := beforeStart(inTrouble + ": " + said); again != said {
		t.Errorf("after the next: got %q, want %q", again, said)
	}
	got := beforeStart("")
	if !strings.Contains(got, "without a stored reason") || !strings.Contains(got, "cdc-relay check") {
		t.Errorf("without a reason: got %q, want that there is none, and how to learn it", got)
	}
}
