package simulator

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

var (
	seeds  = flag.Uint64("seeds", 0, "how many seeds to play; 0: 200 with -short, else 4,000")
	kinds  = flag.String("kinds", strings.Join(Kinds, ","), "of broker: the first gets half of the seeds, others the rest")
	from   = flag.Uint64("from", 1, "the first seed")
	mutant = flag.String("mutant", "", "one of Mutants, to see it caught")
	aloud  = flag.Bool("aloud", false, "print each step as it happens")
	onSQL  = flag.Bool("sql", false, "play with the SQL of package store on a real Postgres")
	within = flag.Bool("within", false, "play in this process, one seed after the other")
)

const (
	fewSeeds, someSeeds, racedSeeds = 200, 4000, 400
	// portion is how many seeds one child process plays.
	portion = 1000
	// enoughSeeds are so many of one kind that all its troubles take place.
	enoughSeeds = 2000
)

// TestEveryRunKeepsTheInvariants plays seeds. It was seen to fail with each of Mutants and with each of mutants.sh, and
// (a kind of trouble that took place in no run) with Kafka never away; with queues when waves began however old the
// permission to send was.
//
// A panic of the relay ends the process that it is in, so the seeds are played by children, each on one core: that is
// also what makes a seed's run nearly the same each time.
func TestEveryRunKeepsTheInvariants(t *testing.T) {
	n := *seeds
	switch {
	case n > 0:
	case testing.Short():
		n = fewSeeds
	default:
		n = someSeeds
	}
	if *seeds == 0 && raced {
		n = min(n, racedSeeds)
	}
	if *within {
		playWithin(t, *from, n)
		return
	}
	left := n
	for i, kind := range strings.Split(*kinds, ",") {
		share := left / 2
		if others := uint64(strings.Count(*kinds, ",")); i > 0 || others == 0 {
			share = left / (others + 1 - uint64(i))
		}
		left -= share
		t.Run(kind, func(t *testing.T) {
			begun := time.Now()
			counts, failed := play(t.Context(), kind, *from, share, portion, *mutant)
			if failed != "" {
				t.Fatal(failed)
			}
			t.Logf("%d seeds in %v, without a violated invariant: %+v", share, time.Since(begun).Round(time.Second), counts)
			if share >= enoughSeeds && *mutant == "" {
				wantAllKinds(t, kind, counts)
			}
		})
	}
}

// wantAllKinds fails for a kind of trouble that took place in none of the runs, and for what none of them went through:
// a fault that is drawn, and no longer made, would be passed forever.
func wantAllKinds(t *testing.T, kind string, counts Counts) {
	t.Helper()
	for _, name := range faultsOf(kind) {
		if counts.Faults[name] == 0 {
			t.Errorf("fault %q took place in none of %d runs", name, counts.Runs)
		}
	}
	for field, value := range reflect.ValueOf(counts).Fields() {
		if value.CanInt() && value.Int() == 0 && !slices.Contains(zeroOf[kind], field.Name) {
			t.Errorf("%s is 0 after %d runs", field.Name, counts.Runs)
		}
	}
}

// someMutants returns the mutants that one of two tests plays: all at night, every other one by day. The second test
// plays the rest.
func someMutants(t *testing.T, first int) (names []string) {
	if harness.Count(t, "mutants caught twice") > 0 {
		return Mutants
	}
	for i := first; i < len(Mutants); i += 2 {
		names = append(names, Mutants[i])
	}
	return names
}

// TestMutantsOfTheStoreAreCaught plays mutants until an invariant breaks. Seen to fail with a mutant that breaks
// nothing.
func TestMutantsOfTheStoreAreCaught(t *testing.T) {
	if testing.Short() || raced {
		t.Skip("takes minutes; make test plays it without the race detector")
	}
	const most = 20_000
	for _, name := range someMutants(t, 0) {
		if name == noReadFence { // one seed of 100,000 comes to it; TestMutantsOfTheStoreDifferFromSQL has
			continue
		}
		t.Run(name, func(t *testing.T) {
			_, failed := play(t.Context(), Kafka, 1, most, portion, name)
			if failed == "" {
				t.Fatalf("%d seeds did not notice it", most)
			}
			first, _, _ := strings.Cut(failed, "\n")
			t.Log(first)
		})
	}
}

// playWithin plays seeds in this process, and ends with the first that fails.
func playWithin(t *testing.T, from, n uint64) {
	kind, _, _ := strings.Cut(*kinds, ",")
	o := Options{Kind: kind, Mutant: *mutant}
	if *onSQL {
		o.real = newRealTables(t).begin
	}
	if *aloud {
		o.Aloud = os.Stdout
	}
	var counts Counts
	for seed := from; seed < from+n; seed++ {
		fmt.Println("seed", seed)
		synctest.Test(t, func(t *testing.T) {
			if err := Run(seed, o, &counts); err != nil {
				t.Fatal(err)
			}
		})
		if t.Failed() {
			return
		}
	}
	text, err := json.Marshal(counts)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("counts %s\n", text)
}

// play plays seeds in child processes, one per core, and says what was found: counts, or the first failure in words.
func play(ctx context.Context, kind string, from, n, portion uint64, mutant string,
	more ...string) (counts Counts, failed string) {
	more = append(more, "-kinds="+kind)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var all Counts
	next := from
	var children sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), int(n/portion)+1) {
		children.Go(func() {
			for {
				mu.Lock()
				first, many := next, min(portion, from+n-next)
				next += many
				mu.Unlock()
				if many == 0 || ctx.Err() != nil {
					return
				}
				c, text := child(ctx, first, many, mutant, more...)
				mu.Lock()
				all.add(&c)
				if text != "" && failed == "" && ctx.Err() == nil {
					failed = text
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	children.Wait()
	return all, failed
}

// child plays seeds in a process of their own. failed is empty, or the seed, what it broke, and how to play it again.
func child(ctx context.Context, from, n uint64, mutant string, more ...string) (counts Counts, failed string) {
	args := append([]string{"-test.run=^TestEveryRunKeepsTheInvariants$", "-test.timeout=20m", "-within",
		"-mutant=" + mutant,
		"-from=" + strconv.FormatUint(from, 10), "-seeds=" + strconv.FormatUint(n, 10)}, more...)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=400")
	out, err := cmd.CombinedOutput()
	seed := from
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "seed "); ok {
			seed, _ = strconv.ParseUint(text, 10, 64)
		}
		if text, ok := strings.CutPrefix(lines.Text(), "counts "); ok && err == nil {
			err = json.Unmarshal([]byte(text), &counts)
		}
	}
	if err == nil {
		return counts, ""
	}
	_, told, _ := bytes.Cut(out, fmt.Appendf(nil, "seed %d\n", seed))
	if mutant != "" {
		more = append(more, "-mutant "+mutant)
	}
	return counts,
		fmt.Sprintf("seed %d failed (%v); once more, with each step: go test ./test/simulator -run EveryRun -v -args "+
			"-within -aloud -seeds 1 -from %d %s\n%s",
			seed, err, seed, strings.Join(more, " "), told)
}
