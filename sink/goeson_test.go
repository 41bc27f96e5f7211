package sink_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// pieces is a driver that takes its time, and tells of each record that is written.
type pieces struct{ swallow }

func (p pieces) Produce(_ context.Context, _ int32, batches []*sink.Batch) {
	for _, b := range batches {
		if b.Outcome = (sink.Outcome{Verdict: sink.Accepted, FirstOffset: -1}); len(b.Records) > 1 {
			b.Outcome = sink.Outcome{Verdict: sink.NotWritten, Written: 1, FirstOffset: -1}
		}
	}
}

// A driver tells of what is written before it goes on. Breaks it catches: that taken for trouble, which people would
// see and for which events would be parked, or for records that are sent again. Seen to fail with either.
func TestEngineTakesAFrontForNoTrouble(t *testing.T) {
	const n = 200
	var e *sink.Engine
	resent, told := 0, 0
	hook := func(r sink.Request) {
		resent += r.Resent
		told++
		if s := e.Status(); s.Troubles > 0 || s.State != sink.OK {
			t.Errorf("status: got %+v, want no trouble", s)
		}
	}
	begin := make(chan struct{})
	e = sink.New(pieces{swallow{partitions: 1, changed: make(chan struct{})}}, sink.Config{
		Hooks: sink.Hooks{Request: hook}, Permit: func(time.Time) bool { <-begin; return true },
	})
	records := make([]*sink.Record, n)
	for i := range records {
		records[i] = &sink.Record{Topic: "topic", Key: fmt.Appendf(nil, "%08d", i), Value: make([]byte, 8), Cost: 100}
	}
	if _, err := e.Submit(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	close(begin)
	for done := 0; done < n; {
		some, err := e.Results(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range some {
			if r != records[done] || r.Result != sink.Published || r.Offset != -1 {
				t.Fatalf("result %d: got %d of key %s at %d, want it published, in order", done, r.Result, r.Key, r.Offset)
			}
			done++
		}
		e.Settled(some)
	}
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if resent != 0 || told < n/2 {
		t.Errorf("got %d records sent again in %d requests, want none in about %d", resent, told, n)
	}
}

// A driver has learned something that it may believe only if no one else could write by then. Breaks it catches: a
// batch that goes on by a permission of before, or that keeps others waiting; one that is taken for trouble, or waits
// for longer than the permission; a status that takes it for one that the driver has. Seen to fail with the batch's own
// time not asked for, with the round given up for it, and with permitPause in place of provePause.
func TestBatchWaitsForALaterPermission(t *testing.T) {
	var mu sync.Mutex
	var learned, proved time.Time
	permit := func(after time.Time) bool {
		mu.Lock()
		defer mu.Unlock()
		return after.IsZero() || proved.After(after)
	}
	inRig(t, 2, sink.Config{Permit: permit}, func(a sinktest.Attempt) sinktest.Plan {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case a.Batch.Partition != 1:
		case learned.IsZero():
			learned = time.Now()
			return sinktest.Plan{Outcome: sink.Outcome{Verdict: sink.NotWritten, Prove: learned}}
		case a.Number > 1 && !a.Batch.Proved.Equal(learned):
			t.Errorf("attempt %d: got a batch proved at %v, want %v", a.Number, a.Batch.Proved, learned)
		}
		return sinktest.Plan{}
	}, func(t *testing.T, r *rig) {
		for range 2 {
			r.submit(in(2)...)
			time.Sleep(time.Minute)
			if some := r.results(); len(some) != 1 || some[0].Partition != 0 {
				t.Errorf("results without a later permission: got %d, want the one of partition 0", len(some))
			} else {
				r.Settled(some)
			}
		}
		if s := r.Status(); s.Troubles > 0 || s.State != sink.OK || s.Unrecorded != 1 || s.Waiting != 1 {
			t.Errorf("status: got %+v, want no trouble, and the one unrecorded event waiting", s)
		}
		mu.Lock()
		proved = time.Now()
		mu.Unlock()
		r.await(2, 5*time.Millisecond)
	})
}
