package chaos

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/doctor/verify"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

var (
	faultsFlag  = flag.Int("faults", 0, "how many faults; 0 = the number of test/harness/scenarios.go")
	rateFlag    = flag.Int("rate", 500, "committed events per second")
	seedFlag    = flag.Uint64("seed", 1, "decides the faults; 0 = another one each time")
	brokersFlag = flag.Int("brokers", 1, "brokers: 1, or 3 with topics of three replicas")
	onlyFlag    = flag.String("only", "", "names of faults, by commas; all others are left out")
)

// Two relays, active and standby, under load, and faults one after another, some of them two at once. Breaks it
// catches: an event lost, out of its lane's order, or changed, by any of them; one that only the reconciler saved,
// where the stream should have brought it; more duplicates than the bound; a relay that hangs or ends. Seen to fail
// with the ledger counted down before the outcome is settled.
func TestChaosLosesNothingAndKeepsTheOrder(t *testing.T) {
	harness.Full(t)
	wanted, seed := *faultsFlag, *seedFlag
	if wanted == 0 {
		wanted = harness.Count(t, "chaos faults")
	}
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	w := newWorld(t, seed, *brokersFlag)
	load := harness.StartWorkload(t, w.pg, harness.Workload{
		Types: w.types, Aggregates: 500, Writers: max(8, *rateFlag/100), Rate: *rateFlag, PayloadBytes: 200, Keyless: 40,
		Tombstones: 40, Seed: seed,
		OnlyKept: true, // a row that is gone cannot be caught up when a slot or a publication is lost
	})
	load.WaitCommitted(t, *rateFlag, patience)
	w.pg.Exec(t, "CREATE INDEX ON truth (created_at)") // for settled, which asks again and again

	began := time.Now()
	tally := newTally()
	for drawn := w.draw(); tally.faults < wanted; {
		w.loop(drawn, tally)
	}
	took := time.Since(began)
	load.Stop(t)
	w.caughtUp()
	w.settled(time.Time{})
	tally.after = w.read()
	if tally.after.late > 0 && !tally.skipped { // else some of it was under way when the last loop was looked at
		t.Errorf("%d events were found late after the last fault was over", tally.after.late)
	}
	report := w.judge()
	t.Logf("seed %d, %d loops, %d faults in %v, %d events (%.0f/s)\n%s", seed, tally.loops, tally.faults,
		took.Round(time.Second),
		report.Expected, float64(report.Expected)/took.Seconds(), tally.table(report))
	if report.Expected == 0 {
		t.Error("no event was written: nothing was shown")
	}
	// What a dead process has sent can reach the topic after its successor's: a rewind that is not contiguous is a
	// duplicate.
	delete(report.Counts, verify.BrokenRewind)
	if err := report.Err(tally.faults * unrecorded); err != nil {
		t.Error(err)
	}
}

// draw gives a function that draws a fault of another target than the given one, in random order, each once before any
// comes again; false: none is left that fits.
func (w *world) draw() func(target string) (fault, bool) {
	var bag []fault
	return func(target string) (fault, bool) {
		if len(bag) == 0 {
			for _, f := range faults {
				if *onlyFlag == "" || slices.Contains(strings.Split(*onlyFlag, ","), f.name) {
					bag = append(bag, f)
				}
			}
			w.random.Shuffle(len(bag), func(i, j int) { bag[i], bag[j] = bag[j], bag[i] })
		}
		n := slices.IndexFunc(bag, func(f fault) bool { return f.target != target })
		if n < 0 {
			return fault{}, false
		}
		f := bag[n]
		bag = slices.Delete(bag, n, n+1)
		return f, true
	}
}

// loop makes one fault, or two that overlap, and waits until the relays have caught up.
func (w *world) loop(draw func(target string) (fault, bool), tally *tally) {
	w.t.Helper()
	began := time.Now()
	first, found := draw("")
	if !found {
		w.t.Fatalf("-only %q names no fault", *onlyFlag)
	}
	ends := []func(){first.begin(w)}
	names, skips := []string{first.name}, first.skips
	w.pause(w.lasts())
	if w.random.IntN(3) == 0 {
		if second, found := draw(first.target); found {
			ends = append(ends, second.begin(w))
			names, skips = append(names, second.name), skips || second.skips
			w.pause(w.lasts())
		}
	}
	for _, end := range ends {
		end()
	}
	took := w.caughtUp()
	if skips {
		w.settled(began.Add(-time.Minute))
	}
	got := w.read()
	tally.add(names, took, got)
	tally.skipped = skips
	w.t.Logf("%d: %s: caught up after %v, %d duplicates, %d late", tally.loops, strings.Join(names, " and "),
		took.Round(time.Millisecond), got.duplicates, got.late)
	if got.late > 0 && !skips {
		w.t.Errorf("%s: the stream left out %d events, which the relay then found in the table: nothing of that may make "+
			"it miss any", strings.Join(names, " and "), got.late)
	}
}

// tally counts what was done and what came of it.
type tally struct {
	loops, faults int
	skipped       bool    // in the last loop the stream left rows out
	after         portion // of what came after the last loop
	kinds         map[string]*kind
}

type kind struct {
	times, together, duplicates, late int
	longest                           time.Duration
}

const together = "two at once"

func newTally() *tally { return &tally{kinds: map[string]*kind{}} }

func (c *tally) of(name string) *kind {
	if c.kinds[name] == nil {
		c.kinds[name] = &kind{}
	}
	return c.kinds[name]
}

func (c *tally) add(names []string, took time.Duration, got portion) {
	c.loops++
	c.faults += len(names)
	for _, name := range names {
		k := c.of(name)
		k.times++
		if len(names) > 1 {
			k.together++
		}
	}
	cause := names[0]
	if len(names) > 1 {
		cause = together
		c.of(together).times++
	}
	k := c.of(cause)
	k.duplicates += got.duplicates
	k.late += got.late
	k.longest = max(k.longest, took)
}

// table is for docs/lab/reliability.md.
func (c *tally) table(r verify.Report) string {
	var b strings.Builder
	b.WriteString("| fault | times | of these with another one | alone: duplicated | alone: found late | alone: longest " +
		"until caught up |\n|---|---|---|---|---|---|\n")
	row := func(name string) {
		if k := c.kinds[name]; k != nil {
			fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %v |\n", name, k.times, k.together, k.duplicates, k.late,
				k.longest.Round(10*time.Millisecond))
		}
	}
	for _, f := range faults {
		row(f.name)
	}
	row(together)
	fmt.Fprintf(&b, "\n| loops | faults | events | lost | duplicated | reordered | other findings "+
		"|\n|---|---|---|---|---|---|---|\n| %d | %d | %d | %d | %d | %d | %d |\n",
		c.loops, c.faults, r.Expected, r.Counts[verify.Missing], r.Duplicates(), r.Counts[verify.Reordered], others(r))
	if c.after.duplicates > 0 {
		fmt.Fprintf(&b, "\n%d of the duplicates came after the last fault was over.\n", c.after.duplicates)
	}
	return b.String()
}

func others(r verify.Report) (n int) {
	for kind, count := range r.Counts {
		if kind != verify.Missing && kind != verify.Duplicated && kind != verify.Reordered && kind != verify.BrokenRewind {
			n += count
		}
	}
	return n
}
