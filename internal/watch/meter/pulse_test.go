package meter

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Breaks it catches: a goroutine that is stuck and goes unnoticed (seen to fail with the settler left out), waiting or
// backpressure of any length taken for it (seen to fail with the window not looked at), a reason that names no one.
func TestStuckIsNoticedAndWaitingIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, p, _ := fresh()
		want := func(live bool, texts ...string) {
			t.Helper()
			got, reasons := m.Live()
			said := strings.Join(reasons, "; ")
			if got != live || reasons == nil || len(reasons) != len(texts) {
				t.Errorf("got live %v %q, want %v for %q", got, said, live, texts)
			}
			for _, text := range texts {
				if !strings.Contains(said, text) {
					t.Errorf("got reasons %q, want %q in them", said, text)
				}
			}
		}
		want(true) // before anything began
		for _, loop := range []struct {
			name  string
			pulse *Pulse
		}{{"dispatcher", &m.Pulses.Dispatching}, {"settler", &m.Pulses.Settling}} {
			loop.pulse.Works()
			time.Sleep(stuckAfter - time.Second)
			want(true)
			time.Sleep(2 * time.Second)
			want(false, loop.name)
			loop.pulse.Waits()
			time.Sleep(time.Hour)
			want(true)
			for range 100 { // busy all the time, with one step after the other
				loop.pulse.Works()
				time.Sleep(time.Second)
			}
			want(true)
			loop.pulse.Waits()
		}
		m.Pulses.Submitting.Works()
		time.Sleep(time.Hour)
		want(false, "window that is empty")
		p.sink.Events = 1
		want(true) // something is in it: this is backpressure
	})
}
