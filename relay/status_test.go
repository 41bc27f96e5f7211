package relay

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// Scripts read /api/v1/status. Break it catches: a name that changes or goes. Seen to fail with a name changed.
func TestStatusNamesAreStable(t *testing.T) {
	at := time.Date(2026, 11, 21, 16, 36, 32, 0, time.UTC)
	got, err := json.MarshalIndent(Status{
		Service: "service", Version: "version", Started: at, Role: RoleHalted, Since: at, Ready: true, Reasons: []string{"reason"},
		State: "state", Degraded: []Degradation{{"reason", "text"}},
		Slot: "slot", Epoch: new(int64(1)), ReceivedLSN: new("0/2"), ConfirmedLSN: new("0/1"),
		LagBytes: new(int64(3)), LagSeconds: new(4.5), RetainedWAL: new(int64(6)), Backlog: new(int64(7)), OldestPending: new(7.5),
		ParkedKeys: new(int64(16)), ParkedEvents: new(int64(17)), DeadLetters: new(int64(18)), MirrorLag: new(int64(24)), LastPublished: &at,
		InFlight: 8, InFlightBytes: 9, Unrecorded: 10, HeldLanes: 11,
		Rates: &Rates{19, 20, 21, 22, 23}, Received: 12, Settled: 13, LookingUp: true, Broker: "ok",
		Alarms:    []sink.Alarm{{Kind: "kind", Topic: "topic", Partition: 14, At: at, Text: "text", Count: 15}},
		LastError: "error", LastErrorAt: &at, LastErrorOver: true, Halt: &HaltStatus{Code: "code", Reason: "reason", Risk: "risk", Remedy: "remedy", Runbook: "runbook"},
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
