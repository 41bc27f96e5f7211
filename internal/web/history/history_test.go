package history

import (
	"fmt"
	"maps"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/relay"
)

// fake is a relay that does what the test says.
type fake struct {
	mu     sync.Mutex
	counts relay.Counts
	topics map[string]uint64
}

func (f *fake) Counts() relay.Counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts
}

func (f *fake) Status() relay.Status {
	return relay.Status{Figures: relay.Figures{Backlog: new(int64(7))}}
}

func (f *fake) Topics() map[string]uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.topics)
}

// Breaks it catches: rates that are totals, points out of order once the ring is full, a ring that grows, a newest
// point that is the oldest (seen to fail with the ring written at 0), percentiles of all time (seen to fail with none
// taken off), rates of other points than the latest (seen to fail with those of all).
func TestHistoryIsTheLastQuarterOfAnHourInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{topics: map[string]uint64{"a": 5}}
		f.counts.Received = 1_000_000
		f.counts.Relay[10] = 1_000_000 // long ago, and very fast
		h := Start(f)
		if _, some := h.Last(); some || len(h.All()) != 0 || h.Rates(10) != nil {
			t.Error("before the first interval: got a point")
		}
		synctest.Wait()
		const slow = 160 // its bucket ends at 1 s
		for i := range Points + 10 {
			f.mu.Lock()
			f.counts.Received += uint64(i)
			f.counts.Marked += 2
			if i%2 == 0 {
				f.counts.Relay[slow] += 100
			}
			f.topics["b"] += 3
			f.mu.Unlock()
			time.Sleep(Interval)
			synctest.Wait()
		}
		h.Stop()
		all := h.All()
		if len(all) != Points {
			t.Fatalf("points: got %d, want %d", len(all), Points)
		}
		for i, p := range all {
			if want := float64(i + 10); p.Received != want || *p.Backlog != 7 {
				t.Fatalf("point %d: got %v received per second and backlog %d, want %v and 7", i, p.Received, *p.Backlog, want)
			}
			if even := i%2 == 0; even != (p.Relay99 != nil) {
				t.Fatalf("point %d: latency %v, want one where something was published and none elsewhere", i, p.Relay99)
			}
			if p.Relay50 != nil && math.Abs(*p.Relay50-1) > .06 {
				t.Fatalf("point %d: median %v s, want about 1 s", i, *p.Relay50)
			}
		}
		if last, some := h.Last(); !some || last != all[len(all)-1] {
			t.Errorf("the newest: got %+v, want that of the end", last)
		}
		if got := h.Rates(10); got == nil || got.Seconds != 10 || got.Received != Points+10-5.5 || got.Marked != 2 {
			t.Errorf("rates of the last 10 s: got %+v, want the mean of the last 10 points, with 2 marked", got)
		}
		topics, others := h.Topics()
		if len(topics) != 2 || others != 0 || topics[0].Name != "b" || topics[0].Rate != 3 || topics[1].Rate != 0 ||
			topics[1].Total != 5 {
			t.Errorf("topics: got %+v and %d others, want b with 3 per second before a with none", topics, others)
		}
	})
}

// Break it catches: a page that grows with the number of topics. Seen to fail with all topics shown.
func TestOnlyTheBusiestTopicsAreShown(t *testing.T) {
	f := &fake{topics: map[string]uint64{}}
	for i := range 1000 {
		f.topics[fmt.Sprintf("t%03d", i)] = uint64(i)
	}
	h := &History{source: f}
	h.lookAtTopics(time.Now())
	if topics, others := h.Topics(); len(topics) != topicsShown || others != 1000-topicsShown || topics[0].Name != "t999" {
		t.Errorf("got %d topics, the first %v, and %d others; want the %d busiest", len(topics), topics[0], others,
			topicsShown)
	}
}
