package lanes

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Half of the keys fail all the time, and they come first: the 99th percentile of the others' events is at most the
// double of what it is when none fails. Seen to fail with five probes before the breaker opens: 1.7 s against 1 ms.
func TestKeysThatFailDoNotHoldUpTheOthers(t *testing.T) {
	for _, alone := range []bool{false, true} { // or the others' events come between those that fail
		quiet, failing := waits99(t, 0, alone), waits99(t, 20, alone)
		if quiet <= 0 || failing > 2*quiet {
			t.Errorf("p99 of the others: got %v, want at most the double of %v", failing, quiet)
		}
	}
}

// waits99 is the 99th percentile of the time from the feed to the decision of the last 20 of 40 keys' events, when the
// first so many keys fail. A handler takes 1 ms, and a failed event is tried again after 50 ms.
func waits99(t *testing.T, bad int, alone bool) (p99 time.Duration) {
	t.Helper()
	const keys, rounds = 40, 300
	synctest.Test(t, func(t *testing.T) {
		e := New(options())
		e.Assign(place, 0, nil)
		fed := map[int64]time.Time{}
		var took []time.Duration
		var mu sync.Mutex
		var workers sync.WaitGroup
		for range e.options.Workers {
			workers.Go(func() {
				for {
					job, more := e.Take()
					if !more {
						return
					}
					time.Sleep(time.Millisecond)
					v := decided(job)
					mu.Lock()
					for i, p := range job.Pieces {
						var key int
						_, _ = fmt.Sscan(string(p.Items[0].Record.Key), &key)
						switch {
						case key < bad:
							v[i] = Verdict{Wait: 50 * time.Millisecond, Alone: 1, Failed: Transient}
						case key >= keys/2:
							for _, item := range p.Items {
								took = append(took, time.Since(fed[item.Record.Offset]))
							}
						}
					}
					mu.Unlock()
					e.Finish(job, v, 0, 0)
				}
			})
		}
		for round := range int64(rounds) {
			var all []*kgo.Record
			for key := range int64(keys) {
				mu.Lock()
				fed[round*keys+key] = time.Now()
				mu.Unlock()
				all = append(all, record(round*keys+key, fmt.Sprint(key)))
				if alone {
					e.Feed(place, all, (round+1)*keys)
					all = nil
					time.Sleep(10 * time.Millisecond)
				}
			}
			e.Feed(place, all, (round+1)*keys)
			time.Sleep(100 * time.Millisecond)
		}
		e.Close()
		workers.Wait()
		if want := rounds * keys / 2; len(took) != want {
			t.Fatalf("decided: got %d of the others' events, want %d", len(took), want)
		}
		slices.Sort(took)
		p99 = took[len(took)*99/100]
	})
	return p99
}

// Half of the keys have parked events that fail, and are due at once again and again; a try takes ten times as long as
// an event of the others, which wait for none of them. Break it catches: one queue for both, in which they wait for
// all: 50 ms.
func TestTriesOfParkedKeysDoNotHoldUpTheOthers(t *testing.T) {
	const keys, rounds, try = 40, 200, 10 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		e := New(options())
		var parked []Name
		for key := range int64(keys / 2) {
			parked = append(parked, NameOf(record(0, fmt.Sprint(key))))
		}
		e.Assign(place, 0, parked)
		fed := map[int64]time.Time{}
		var took []time.Duration
		tries := 0
		var mu sync.Mutex
		var workers sync.WaitGroup
		for range e.options.Workers {
			workers.Go(func() {
				for job, more := e.Take(); more; job, more = e.Take() {
					if job.Kind == Retry {
						time.Sleep(try)
						mu.Lock()
						tries++
						mu.Unlock()
						e.Finish(job, []Verdict{{Parked: true, Failed: Transient}}, 0, 0)
						continue
					}
					time.Sleep(time.Millisecond)
					mu.Lock()
					for _, p := range job.Pieces {
						for _, item := range p.Items {
							took = append(took, time.Since(fed[item.Record.Offset]))
						}
					}
					mu.Unlock()
					e.Finish(job, decided(job), 0, 0)
				}
			})
		}
		for round := range int64(rounds) {
			for _, name := range parked {
				e.Due(place, name)
			}
			for key := range int64(keys / 2) {
				offset := round*keys/2 + key
				mu.Lock()
				fed[offset] = time.Now()
				mu.Unlock()
				e.Feed(place, []*kgo.Record{record(offset, fmt.Sprint(keys/2+key))}, offset+1)
				time.Sleep(5 * time.Millisecond)
			}
		}
		e.Close()
		workers.Wait()
		slices.Sort(took)
		if p99 := took[len(took)*99/100]; p99 > try {
			t.Errorf("p99 of the others: got %v, want at most one try, %v", p99, try)
		}
		if want := rounds * keys / 2 / 2; tries < want {
			t.Errorf("tries: got %d, want at least %d: the others leave them no worker", tries, want)
		}
	})
}
