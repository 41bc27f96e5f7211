package sink_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// A driver whose broker takes a batch up to a point says how far. Catches: a front that is sent again or not published,
// a rest that is not, offsets on the wrong record, credit that the front keeps permanently. Seen to fail with
// e.outstanding not lowered by the front, and with one record of it not published.
func TestEnginePublishesTheWrittenFrontAndSendsTheRest(t *testing.T) {
	const records, front = 400, 50 // MaxUnrecorded lets a batch have 101
	var sizes []int
	config := sink.Config{MaxUnrecorded: 800, Backoff: func(int) time.Duration { return time.Millisecond }}
	inRig(t, 1, config, func(a sinktest.Attempt) sinktest.Plan {
		sizes = append(sizes, len(a.Batch.Records))
		if len(a.Batch.Records) <= front {
			return sinktest.Plan{}
		}
		o := trouble([]sink.Verdict{sink.NotWritten, sink.Unknown}[a.Number%2], sink.ClusterTrouble, true)
		o.Written = front
		return sinktest.Plan{Outcome: o}
	}, func(t *testing.T, r *rig) {
		all := in(records)
		r.submit(all...)
		r.await(records, time.Minute)
		synctest.Wait()
		for i, record := range all {
			if record.Result != sink.Published || record.Offset != int64(i) {
				t.Fatalf("record %d: got result %d at offset %d, want published at %d", i, record.Result, record.Offset, i)
			}
		}
		first := sizes[0]
		sizes = nil
		r.submit(in(records)...)
		r.await(records, time.Minute)
		if sizes[0] != first {
			t.Errorf("first batch afterwards: got %d records, want %d as before", sizes[0], first)
		}
		if s := r.Status(); s.Unrecorded != 0 || s.State != sink.OK {
			t.Errorf("status when all is settled: got %+v, want nothing unrecorded and ok", s)
		}
	})
}
