package relay

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

// Breaks it catches: a goroutine that is stuck and goes unnoticed (seen to fail with the settler left out), waiting or
// backpressure of any length taken for it (seen to fail with the window not looked at), a reason that names nobody.
func TestStuckIsNoticedAndWaitingIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := assemble(options{config: config.Default()})
		engine := sink.New(sinktest.NewBroker(), sink.Config{})
		defer func() { _ = engine.Close(t.Context()) }()
		r.term.Store(&term{r: r, engine: engine})
		want := func(live bool, texts ...string) {
			t.Helper()
			got, reasons := r.Live()
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
		for _, p := range []struct {
			name  string
			pulse *pulse
		}{{"dispatcher", &r.pulses.dispatching}, {"settler", &r.pulses.settling}} {
			p.pulse.Works()
			time.Sleep(stuckAfter - time.Second)
			want(true)
			time.Sleep(2 * time.Second)
			want(false, p.name)
			p.pulse.Waits()
			time.Sleep(time.Hour)
			want(true)
			for range 100 { // busy all the time, with one step after the other
				p.pulse.Works()
				time.Sleep(time.Second)
			}
			want(true)
			p.pulse.Waits()
		}
		r.pulses.submitting.Works()
		time.Sleep(time.Hour)
		want(false, "window that is empty")
		if _, err := engine.Submit(t.Context(), []*sink.Record{{Topic: "absent", Key: []byte("k"), Value: []byte("v")}}); err != nil {
			t.Fatal(err)
		}
		want(true) // something is in it: this is backpressure
	})
}

// Break it catches: events that nobody settles, and nobody says why, shown as ready (seen to fail with the moves never noted,
// and with an idle relay's time counted).
func TestStandstillIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := assemble(options{config: config.Default()})
		term := idleTerm(t, r)
		r.health.Enter(RoleActive)
		var settled uint64
		ready := func(want bool) {
			t.Helper()
			term.noteMoves(&settled)
			if st := r.Status(); st.Ready != want {
				t.Errorf("ready: got %v %q, want %v", st.Ready, st.Reasons, want)
			}
		}
		time.Sleep(time.Hour)
		ready(true) // nothing to do
		waiting := term.inflight.Take(nil)[:1]
		term.inflight.Admit(waiting)
		time.Sleep(standstill - time.Second)
		ready(true)
		time.Sleep(2 * time.Second)
		ready(false)
		r.metrics.settledEvents.Add(1)
		ready(true)
		time.Sleep(standstill + time.Second)
		ready(false)
		term.inflight.Forget(waiting)
		ready(true)
	})
}

// Break it catches: a relay all of whose events are parked, because their topic is in trouble, that is called not ready for events
// that nobody settles. Seen to fail with parks that are no moves.
func TestParkingIsNoStandstill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := assemble(options{config: config.Default()})
		term := idleTerm(t, r)
		r.health.Enter(RoleActive)
		events := term.inflight.Take(nil)[:5]
		term.inflight.Admit(events)
		var settled uint64
		term.noteMoves(&settled)
		for range 4 {
			time.Sleep(standstill - time.Second)
			r.metrics.Parked(1)
			term.noteMoves(&settled)
			if st := r.Status(); !st.Ready {
				t.Fatalf("events are parked one after the other: got not ready, %q", st.Reasons)
			}
		}
	})
}
