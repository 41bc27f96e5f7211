package settle

import "testing"

// Break it catches: a reason that grows with each restart, or that is nobody's. Seen to fail with what was added before
// kept, and with the code kept.
func TestReasonFromBeforeAStartIsSaidOnce(t *testing.T) {
	const why = "topic t does not exist"
	said := beforeStart(inTrouble + ": " + why)
	if want := why + before; said != want {
		t.Errorf("after a restart: got %q, want %q", said, want)
	}
	if again := beforeStart(inTrouble + ": " + said); again != said {
		t.Errorf("after the next: got %q, want %q", again, said)
	}
	if got := beforeStart(""); got == "" || got == before {
		t.Errorf("without a reason: got %q, want that there is none", got)
	}
}
