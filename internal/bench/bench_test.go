package bench_test

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/bench"
)

// Break it catches: a wrong outcome that does not fail the command.
func TestReportIsWrongWhenARunIs(t *testing.T) {
	for i, r := range []bench.Outcome{{Missing: 1}, {Duplicated: 1}, {OutOfOrder: 1}, {Different: 1}, {}} {
		report := bench.Report{Scenarios: []bench.Scenario{{Runs: []bench.Outcome{{}, r}}}}
		if want := i < 4; report.Wrong() != want {
			t.Errorf("%+v: got wrong = %t, want %t", r, report.Wrong(), want)
		}
	}
}
