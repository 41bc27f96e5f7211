package lanes

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var place = Place{Topic: "t", Partition: 0}

func options() Options {
	return Options{
		Workers: 4, MaxBatch: 10, BatchTime: 20 * time.Millisecond, MaxEvents: 1000, MaxBytes: 1 << 20,
		Breaker: BreakerOptions{
			Outages: 3, Transients: 5, ProbeMin: time.Second, ProbeMax: 10 * time.Second,
			Deaths: 10, DeathRatio: 0.5, Window: time.Minute,
		},
	}
}

func record(offset int64, key string) *kgo.Record {
	r := &kgo.Record{Topic: "t", Offset: offset}
	if key != "" {
		r.Key = []byte(key)
	}
	return r
}

func feed(e *Engine, from, to int64, keys int64) {
	var all []*kgo.Record
	for o := from; o < to; o++ {
		all = append(all, record(o, fmt.Sprint(o%keys)))
	}
	e.Feed(place, all, to)
}

func decided(job Job) []Verdict {
	v := make([]Verdict, len(job.Pieces))
	for i, p := range job.Pieces {
		v[i] = Verdict{Decided: len(p.Items), Success: true}
	}
	return v
}

func next(e *Engine) int64 { return e.Progress()[0].Next }

// Jobs end in any order and any way; each key's events come in order, one job at a time, and the offset passes nothing
// that is undecided. Seen to fail with a lane that is queued again while a job has it, and with a tracker that counts
// decided records instead of the decided front.
func TestKeysKeepTheirOrderAndOffsetsPassNothing(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) { playEngine(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func playEngine(t *testing.T, rng *rand.Rand) {
	t.Helper()
	e := New(options())
	defer e.Close()
	e.Assign(place, 0, nil)
	const events, keys = 60, 7
	fed := int64(0)
	passed := map[int64]bool{}
	last := map[Name]int64{}
	var jobs []Job
	has := map[Name]bool{}
	for len(passed) < events {
		if fed < events && rng.IntN(2) == 0 {
			to := min(events, fed+1+rng.Int64N(9))
			feed(e, fed, to, keys)
			fed = to
		}
		if free(fed, keys, passed, has) {
			if job, ok := e.Take(); ok {
				for _, p := range job.Pieces {
					if has[p.Lane.Name] {
						t.Fatalf("lane %q is in two jobs", p.Lane.Name)
					}
					has[p.Lane.Name] = true
				}
				jobs = append(jobs, job)
			}
		}
		if len(jobs) > 0 && rng.IntN(2) == 0 {
			n := rng.IntN(len(jobs))
			finish(t, e, rng, jobs[n], passed, last, has)
			jobs = append(jobs[:n], jobs[n+1:]...)
		}
		for o := range next(e) {
			if !passed[o] {
				t.Fatalf("the offset is %d, and %d is not decided", next(e), o)
			}
		}
	}
	if next(e) != events {
		t.Errorf("the offset at the end: got %d, want %d", next(e), events)
	}
}

// free reports whether there is an event that Take can hand out, now or when its wait is over.
func free(fed, keys int64, passed map[int64]bool, has map[Name]bool) bool {
	for o := range fed {
		if !passed[o] && !has[Name(fmt.Sprint("k", o%keys))] {
			return true
		}
	}
	return false
}

func finish(
	t *testing.T, e *Engine, rng *rand.Rand, job Job, passed map[int64]bool, last map[Name]int64, has map[Name]bool,
) {
	t.Helper()
	verdicts := decided(job)
	for i, p := range job.Pieces {
		delete(has, p.Lane.Name)
		if rng.IntN(4) == 0 { // none of it, and from now on one by one
			verdicts[i] = Verdict{Alone: len(p.Items), Wait: time.Duration(rng.IntN(3)) * time.Millisecond}
			continue
		}
		for _, item := range p.Items {
			if before, seen := last[p.Lane.Name]; seen && before >= item.Record.Offset {
				t.Fatalf("lane %q: offset %d came behind %d", p.Lane.Name, item.Record.Offset, before)
			}
			last[p.Lane.Name] = item.Record.Offset
			passed[item.Record.Offset] = true
		}
	}
	e.Finish(job, verdicts, 1, time.Millisecond)
}

// What follows a parked event is parked behind it until the lane is free. Seen to fail with parked lanes that are
// handled like others.
func TestFollowersOfAParkedEventAreParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(options())
		defer e.Close()
		e.Assign(place, 5, []Name{"k0"})
		feed(e, 5, 7, 1)
		for _, want := range []struct {
			kind    Kind
			items   int
			verdict Verdict
		}{
			{Retry, 0, Verdict{Parked: true}},               // what an assignment finds parked is looked at first
			{Park, 2, Verdict{Decided: 2, Parked: true}},    // not due: what came goes behind it
			{Retry, 0, Verdict{Freed: true}},                // its time has come, and all is done
			{Handle, 1, Verdict{Decided: 1, Success: true}}, // so the key goes on
		} {
			job, _ := e.Take()
			if job.Kind != want.kind || len(job.Pieces[0].Items) != want.items {
				t.Fatalf("got kind %d with %d items, want %d with %d", job.Kind, len(job.Pieces[0].Items), want.kind, want.items)
			}
			e.Finish(job, []Verdict{want.verdict}, 0, 0)
			if want.kind == Park {
				e.Due(place, "k0")
			}
			if want.verdict.Freed {
				feed(e, 7, 8, 1)
			}
		}
		if next(e) != 8 {
			t.Errorf("offset: got %d, want 8", next(e))
		}
	})
}

// A revoked partition has no new jobs, and what runs still counts; of a dropped one nothing does. Seen to fail with a
// channel that is closed at once.
func TestARevokedPartitionWaitsForWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(options())
		defer e.Close()
		e.Assign(place, 0, nil)
		feed(e, 0, 4, 4)
		job, _ := e.Take()
		idle := e.Revoke([]Place{place}, 0)
		select {
		case <-idle[0]:
			t.Fatal("it is idle, and a job runs")
		default:
		}
		e.Finish(job, decided(job), 1, time.Millisecond)
		<-idle[0]
		if want := int64(len(job.Pieces)); next(e) != want {
			t.Errorf("offset: got %d, want %d", next(e), want)
		}
		e.Drop([]Place{place})
		if stats := e.Stats(); stats.Events != 0 || stats.Busy != 0 {
			t.Errorf("after the drop: got %+v, want nothing", stats)
		}
	})
}

// Several keys fail by an outage: one event at a time is tried, less and less often; a success opens the way. Seen to
// fail with a breaker that stays open after a success.
func TestTheBreakerLetsProbesThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(options())
		defer e.Close()
		e.Assign(place, 0, nil)
		feed(e, 0, 40, 40)
		for range 3 {
			job, _ := e.Take()
			v := make([]Verdict, len(job.Pieces))
			for i := range v {
				v[i] = Verdict{Wait: time.Millisecond, Failed: Outage}
			}
			e.Finish(job, v, 0, 0)
			if e.breaker.careful() {
				break
			}
		}
		began := time.Now()
		for range doubtful { // other keys, at once
			job, _ := e.Take()
			if !job.Probe || len(job.Pieces) != 1 || job.Pieces[0].Lane.failing || time.Since(began) > 0 {
				t.Fatalf("got probe %v of %d pieces after %v, want one of a key that does not fail, at once", job.Probe,
					len(job.Pieces), time.Since(began))
			}
			e.Finish(job, []Verdict{{Wait: time.Millisecond, Failed: Outage}}, 0, 0)
		}
		for _, want := range []time.Duration{time.Second, 3 * time.Second, 7 * time.Second} {
			job, _ := e.Take()
			if got := time.Since(began); !job.Probe || len(job.Pieces) != 1 || len(job.Pieces[0].Items) != 1 || got != want {
				t.Fatalf("got probe %v of %d pieces after %v, want one event after %v", job.Probe, len(job.Pieces), got, want)
			}
			if want < 7*time.Second {
				e.Finish(job, []Verdict{{Wait: time.Millisecond, Failed: Outage}}, 0, 0)
			} else {
				e.Finish(job, decided(job), 1, 0)
			}
		}
		if job, _ := e.Take(); job.Probe {
			t.Error("a success has closed the breaker, and jobs are probes")
		}
	})
}

// A log that lost its end has other events at offsets that were read. Seen to fail with records below the last one
// dropped.
func TestALogThatLostItsEndIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(options())
		defer e.Close()
		e.Assign(place, 0, nil)
		feed(e, 0, 3, 1)
		job, _ := e.Take()
		feed(e, 1, 2, 1)
		e.Finish(job, decided(job), 1, 0) // of the log as it was: it does not count
		job, _ = e.Take()
		if got := job.Pieces[0].Items[0].Record.Offset; got != 1 {
			t.Errorf("got offset %d, want 1", got)
		}
		e.Finish(job, decided(job), 1, 0)
		if left := e.Stats().Events; next(e) != 2 || left != 0 {
			t.Errorf("got offset %d with %d events left, want 2 with none", next(e), left)
		}
	})
}

// BenchmarkEvent measures the engine's cost per event, with 1,000 keys: feeding, a job's share, its verdict.
func BenchmarkEvent(b *testing.B) {
	o := options()
	o.MaxBatch, o.MaxEvents = 100, 1<<30
	e := New(o)
	defer e.Close()
	e.Assign(place, 0, nil)
	const lot = 2000
	records := make([]*kgo.Record, lot)
	for i := range records {
		records[i] = record(0, fmt.Sprint("key", i%1000))
	}
	offset := int64(0)
	b.ReportAllocs()
	for done := 0; done < b.N; done += lot {
		for _, r := range records {
			r.Offset = offset
			offset++
		}
		e.Feed(place, records, offset)
		for e.Stats().Events > 0 {
			job, _ := e.Take()
			e.Finish(job, decided(job), 1, time.Microsecond)
		}
	}
}
