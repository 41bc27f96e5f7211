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
			if got := l.MayProduce(time.Time{}); got != want {
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

// Catches: a proof that was asked for before taken for one of after; a wish that is not heard, or told when there is
// nothing to wait for. Seen to fail with a proof of the same moment taken, and with no token left in wanted.
func TestLaterProofIsWantedUntilThereIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(time.Now(), 10*time.Second)
		step := func(after time.Time, may, wanted bool, when string) {
			t.Helper()
			if got := l.MayProduce(after); got != may {
				t.Errorf("%s: may produce %t, want %t", when, got, may)
			}
			select {
			case <-l.Wanted():
				if !wanted {
					t.Errorf("%s: a proof is wanted, want none", when)
				}
			default:
				if wanted {
					t.Errorf("%s: no proof is wanted, want one", when)
				}
			}
		}
		time.Sleep(time.Second)
		learned := time.Now()
		step(learned, false, false, "without a proof")
		l.Prove(time.Now())
		step(time.Time{}, true, false, "just proved")
		step(learned, false, true, "proved in the same moment")
		step(learned, false, true, "asked again")
		time.Sleep(time.Nanosecond)
		l.Prove(time.Now())
		step(learned, true, false, "proved after it")
		l.Disown()
		step(learned, false, false, "the connection is gone")
	})
}
