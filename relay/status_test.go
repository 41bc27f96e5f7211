package relay

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/internal/watch/meter"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// Scripts read /api/v1/status. Break it catches: a name that changes or goes. Seen to fail with a name changed.
func TestStatusNamesAreStable(t *testing.T) {
	at := time.Date(2026, 11, 21, 16, 36, 32, 0, time.UTC)
	got, err := json.MarshalIndent(Status{
		Service: "service", Version: "version", Started: at, Role: RoleHalted, Since: at, Ready: true,
		Reasons: []string{"reason"},
		State:   "state", Degraded: []Degradation{{"reason", "text"}},
		Slot: "slot", Epoch: new(int64(1)), ReceivedLSN: new("0/2"), ConfirmedLSN: new("0/1"),
		Figures: Figures{
			LagBytes: new(int64(3)), LagSeconds: new(4.5), RetainedWAL: new(int64(6)), Backlog: new(int64(7)),
			OldestPending: new(7.5), Spooled: new(int64(11)), ParkedKeys: new(int64(16)), ParkedEvents: new(int64(17)),
			DeadLetters: new(int64(18)), MirrorLag: new(int64(24)), MirrorAge: new(26.5),
			Walsender: &meter.Walsender{State: new("decoding"), BehindBytes: new(int64(29)), BehindSeconds: new(30.5),
				Sent: new("0/1F"), WaitEvent: "ReorderBufferRead", SpilledTransactions: 32, SpilledBytes: 33},
		},
		Work: Work{
			InFlight: 8, InFlightBytes: 9, Unrecorded: 10, HeldLanes: 11, LastPublished: &at,
			Rates:    &Rates{Seconds: 19, Received: 20, Published: 21, Settled: 22, Dead: 23, Marked: 27},
			Received: 12, Settled: 13, LookingUp: true,
			Interleaved: &meter.Interleaved{Total: 28, Last: []meter.InterleavedPair{
				{AggregateType: "order", AggregateID: "42", Event: "later", Before: "earlier", At: at},
			}},
		},
		Trouble: Trouble{
			Broker: "ok", LastError: "error", LastErrorAt: &at, LastErrorOver: true,
			Alarms: []store.Alarm{{
				ID: 25, Kind: "kind", Topic: "topic", Partition: 14, FirstSeen: at, At: at, Text: "text", Count: 15,
				Repair: "repair",
			}},
			Halt: &HaltStatus{Code: "code", Reason: "reason", Risk: "risk", Remedy: "remedy", Runbook: "runbook"},
		},
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "status.json")
	if *rewrite {
		if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got)+"\n" != string(want) {
		t.Errorf("status: got\n%s\nwant\n%s", got, want)
	}
}

// Break it catches: events that no one settles, and no one says why, shown as ready (seen to fail with the moves never
// noted, and with an idle relay's time counted), or as live permanently; an outage taken for such a standstill. Seen to
// fail with Live asking the pulses alone, and with reasons not looked at.
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
		r.meter.Outcomes.Journaled(1, 0)
		ready(true)
		time.Sleep(standstill + time.Second)
		ready(false)
		if live, reasons := r.Live(); !live {
			t.Errorf("not live when only just not ready: %q", reasons)
		}
		time.Sleep(deadStandstill - standstill)
		if live, reasons := r.Live(); live || len(reasons) != 1 {
			t.Errorf("live: got %v %q, want a restart", live, reasons)
		}
		r.health.CannotRecord("journal", errors.New("connection refused"))
		if live, reasons := r.Live(); !live {
			t.Errorf("not live in an outage, which no restart ends: %q", reasons)
		}
		r.health.Recorded("journal")
		term.inflight.Forget(waiting)
		ready(true)
		if live, reasons := r.Live(); !live {
			t.Errorf("not live with nothing to do: %q", reasons)
		}
	})
}

// Break it catches: a relay all of whose events are parked, because their topic is in trouble, that is called not
// ready for events that no one settles. Seen to fail with parks that are no moves.
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
			r.meter.Outcomes.Parked(1)
			term.noteMoves(&settled)
			if st := r.Status(); !st.Ready {
				t.Fatalf("events are parked one after the other: got not ready, %q", st.Reasons)
			}
		}
	})
}
