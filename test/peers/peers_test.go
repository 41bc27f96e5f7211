package peers

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(ordersVariable); text != "" {
		os.Exit(obey(text))
	}
	harness.Main(m)
}

var (
	peersFlag  = flag.String("peers", "", "compare these, by commas, or all: "+strings.Join(peerNames, ", "))
	faultsFlag = flag.String("faults", "all", "in these faults, by commas, or all: "+strings.Join(faultNames, ", "))
	rateFlag   = flag.Int("rate", 1000, "events per second")
	killsFlag  = flag.Int("kills", 10, "kills of each peer")
	goPQFlag   = flag.String("gopqcdc", "", "go-pq-cdc-kafka already built from testdata/gopqcdc, instead of building it")
)

// chosen are the names that a flag gives.
func chosen(t *testing.T, text string, names []string) []string {
	t.Helper()
	if text == "all" {
		return names
	}
	picked := strings.Split(text, ",")
	for _, name := range picked {
		if !slices.Contains(names, name) {
			t.Fatalf("%q is none of %s", name, strings.Join(names, ", "))
		}
	}
	return picked
}

// TestPeers runs each peer through each fault, and prints the tables: make peers. It passes no sentence on peers; that
// the judge is awake is seen in TestJudgeNoticesALossADoubleASwapAndChangedBytes and TestRelayAndWorkerThroughOneKill.
// Seen to fail with a peer that sends nothing within the patience.
func TestPeers(t *testing.T) {
	if *peersFlag == "" {
		t.Skip("nothing to measure: make peers gives -peers")
	}
	s := sizes{rate: *rateFlag, kills: *killsFlag, cuts: 60, warm: 5 * time.Second, paced: 20 * time.Second,
		lasts: 15 * time.Second, after: 3 * time.Second}
	st := newStage(t)
	var all []outcome
	load := []string{harness.LoadAverage()}
	for _, fault := range chosen(t, *faultsFlag, faultNames) {
		for _, name := range chosen(t, *peersFlag, peerNames) {
			o := outcome{peer: name, fault: fault, skipped: "failed: see the log"}
			passed := t.Run(fault+", "+name, func(t *testing.T) {
				sized := s
				if fault == noFault {
					sized.warm = 20 * time.Second // a cold JVM
				}
				o = st.measure(t, name, fault, sized)
			})
			if passed && o.skipped != "" {
				o.skipped = "not measured: see the log"
			}
			all = append(all, o)
		}
	}
	load = append(load, harness.LoadAverage())
	fmt.Printf("\nLoad of the machine at the beginning and at the end: %s\n\n%s", strings.Join(load, ", "), tables(all))
}

// The small run of every day. Breaks it catches: a comparison that no longer fits the harness or the relay, and a relay
// or a worker that loses or disorders at kill -9. Seen to fail with a worker that sends its rows in the order of their
// ids.
func TestRelayAndWorkerThroughOneKill(t *testing.T) {
	harness.Full(t)
	st := newStage(t)
	s := sizes{rate: 1000, kills: 1, warm: time.Second}
	for _, name := range []string{relayName, pollerName} {
		t.Run(name, func(t *testing.T) {
			o := st.measure(t, name, killsFault, s)
			if o.lost != 0 || o.disordered != 0 || o.rewritten != 0 || o.other != 0 {
				t.Errorf("%v: want none missing, in order, with their bytes", o.report)
			}
			// A recovery of 0 is one, too: everything that was committed had been published before the kill.
			if o.run.events < s.rate || o.peerCPU == 0 || len(o.ends) != 1 {
				t.Errorf("%d events, CPU %v, %d kills: want figures", o.run.events, o.peerCPU, len(o.ends))
			}
		})
	}
}
