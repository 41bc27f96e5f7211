package simulator

import (
	"flag"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

var sqlSeeds = flag.Uint64("sqlseeds", 0, "how many seeds to play on SQL; 0: see package harness")

// sqlPortion is how many seeds one child process plays with one Postgres.
const sqlPortion = 250

// TestEveryRunOnSQLKeepsTheInvariants plays whole seeds in which the SQL of package store, on a real Postgres, answers
// the relay. The made-up tables take each call, too, and must hold the same after it: by these the judge judges.
//
// Breaks it catches: a statement that is not what the simulator takes it for, in what relays do with it. Seen to fail
// with SQL that leaves events parked that were retried and settled, and with a made-up look-up that forgets parked
// events and dead letters.
func TestEveryRunOnSQLKeepsTheInvariants(t *testing.T) {
	if raced || testing.Short() {
		t.Skip("make test plays it without the race detector")
	}
	n := uint64(harness.Count(t, "simulated runs on SQL"))
	if *sqlSeeds > 0 {
		n = *sqlSeeds
	}
	begun := time.Now()
	counts, failed := play(t.Context(), Kafka, *from, n, sqlPortion, *mutant, "-sql")
	switch {
	case failed != "":
		t.Fatal(failed)
	case counts.Runs == 0:
		t.Skip("SKIPPED, NOTHING WAS TESTED: Postgres is missing")
	case counts.Runs != int(n):
		t.Fatalf("%d of %d seeds were played", counts.Runs, n)
	}
	t.Logf("%d seeds in %v, without a violated invariant: %+v", n, time.Since(begun).Round(time.Second), counts)
}
