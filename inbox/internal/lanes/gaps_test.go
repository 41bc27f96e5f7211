package lanes

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// gapped has handed out and decided one long lane, and nothing of the others between whose records it lies.
func gapped(t *testing.T, seed int64) *Engine {
	t.Helper()
	o := options()
	o.Workers = 1
	e := New(o)
	e.Assign(place, 0, nil)
	feed(e, 0, 20+seed%5, 4)
	job, ok := e.Take()
	if !ok || len(job.Pieces) > 3 {
		t.Fatalf("the first job: got %d of 4 lanes, want some", len(job.Pieces))
	}
	e.Finish(job, decided(job), 0, 0)
	if at := next(e); at >= 15 {
		t.Fatalf("the offset: got %d, want a gap", at)
	}
	return e
}

// drain takes jobs until there are no more.
func drain(e *Engine) (events int) {
	for {
		job, ok := e.Take()
		if !ok {
			return events
		}
		for _, p := range job.Pieces {
			events += len(p.Items)
		}
		e.Finish(job, decided(job), 0, 0)
	}
}

// What is below a decided record is decided before a stop ends, so that it is not delivered again; nothing above it is
// begun. Seen to fail with a Drain that is a Close.
func TestAStopFillsTheGaps(t *testing.T) {
	for seed := range int64(5) {
		synctest.Test(t, func(t *testing.T) {
			e := gapped(t, seed)
			highest := e.partitions[place].highest
			e.Drain(time.Second)
			drain(e)
			if got := next(e); got != highest {
				t.Errorf("the offset: got %d, want %d, all that was decided and no more", got, highest)
			}
		})
	}
}

// The same when a partition is revoked, while the others go on. Seen to fail with a Revoke that hands out nothing.
func TestARevokedPartitionFillsItsGaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := gapped(t, 0)
		highest := e.partitions[place].highest
		idle := e.Revoke([]Place{place}, time.Second)[0]
		for open := true; open; {
			select {
			case <-idle:
				open = false
			default:
				job, _ := e.Take()
				e.Finish(job, decided(job), 0, 0)
			}
		}
		if got := next(e); got != highest {
			t.Errorf("the offset: got %d, want %d", got, highest)
		}
		e.Close()
	})
}

// A gap that no one fills ends with patience: a key that fails and waits, workers that are elsewhere, a breaker that is
// open. Seen to fail without the timer.
func TestAGapHoldsNothingUpForLong(t *testing.T) {
	for _, how := range []string{"nobody works", "the lane waits", "the breaker is open"} {
		synctest.Test(t, func(t *testing.T) {
			e := gapped(t, 0)
			defer e.Close()
			began := time.Now()
			switch how {
			case "the lane waits":
				job, _ := e.Take()
				verdicts := make([]Verdict, len(job.Pieces))
				for i := range verdicts {
					verdicts[i] = Verdict{Wait: time.Hour, Failed: Transient}
				}
				e.Finish(job, verdicts, 0, 0)
			case "the breaker is open":
				for n := range 5 {
					e.breaker.note(&Lane{Name: Name(fmt.Sprint(n))}, Verdict{Failed: Transient}, false, time.Now())
				}
			}
			<-e.Revoke([]Place{place}, time.Second)[0]
			if took := time.Since(began); took > time.Second {
				t.Errorf("%s: it took %v, want at most a second", how, took)
			}
		})
	}
}
