package lanes

import (
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Events of a bounded class have no more jobs than its limit, of their own, and never keep the others from a worker;
// when one ends, the next begins. Parked ones count, too. Seen to fail with classes that share a job, with a limit of
// one more, and with parked events let in unasked.
func TestAClassHasNoMoreJobsThanItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options()
		o.Limits = Limits{Most: []int{2}, Of: func(r *kgo.Record) int { return int(1 - r.Offset%2) }} // even: bounded
		e := New(o)
		defer e.Close()
		e.Assign(place, 0, nil)
		feed(e, 0, 40, 40)
		take := func() (Job, bool) {
			e.mu.Lock()
			job, found := e.collect(e.breaker.next)
			if found {
				e.busy++
			}
			e.mu.Unlock()
			for _, p := range job.Pieces {
				for _, item := range p.Items {
					if item.class != job.class {
						t.Errorf("offset %d is in a job of class %d", item.Record.Offset, job.class)
					}
				}
			}
			return job, found
		}
		var slow []Job
		plain := 0
		for job, found := take(); found; job, found = take() {
			if job.class == 1 {
				slow = append(slow, job)
				continue
			}
			for _, p := range job.Pieces {
				plain += len(p.Items)
			}
			e.Finish(job, decided(job), 0, 0)
		}
		if len(slow) != 2 || plain != 20 {
			t.Fatalf("got %d bounded jobs at once and %d other events, want 2 and 20", len(slow), plain)
		}
		if _, may := e.Enter(record(2, "k")); may {
			t.Error("parked events were let in beside two bounded jobs")
		}
		e.Finish(slow[0], decided(slow[0]), 0, 0)
		class, may := e.Enter(record(2, "k"))
		if !may {
			t.Error("parked events were not let in beside one bounded job")
		}
		if _, found := take(); found {
			t.Error("a third bounded job was begun beside parked events")
		}
		e.Leave(class)
		if job, found := take(); !found || job.class != 1 {
			t.Error("no bounded job was begun when there was room")
		}
	})
}
