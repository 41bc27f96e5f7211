package lease

import (
	"testing"
	"testing/synctest"
	"time"
)

// The server may grant the slot to another process once wal_sender_timeout has passed since it last heard of us, which
// can be as long before the proof as its answer was under way. Breaks it catches: a proof that holds for the whole of
// that time, or less than half of it; one that outlives the connection. Seen to fail with the whole time-out, with a
// quarter of it, and with a proof kept by Disown.
func TestProofHoldsForHalfOfTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 10 * time.Second
		l := New(time.Now(), timeout)
		may := func(want bool, when string) {
			t.Helper()
			if got := l.MayProduce(); got != want {
				t.Errorf("%s: may produce %t, want %t", when, got, want)
			}
		}
		may(false, "without a proof")
		time.Sleep(time.Second)
		l.Prove(time.Now())
		may(true, "just proved")
		time.Sleep(timeout/2 - time.Nanosecond)
		may(true, "almost half of the time-out later")
		time.Sleep(time.Nanosecond)
		may(false, "half of the time-out later")
		l.Prove(time.Now())
		may(true, "proved again")
		l.Disown()
		may(false, "the connection is gone")
		if got := l.Valid(); got != timeout/2 {
			t.Errorf("a proof is said to hold for %v, want %v", got, timeout/2)
		}
	})
}
