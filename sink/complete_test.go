package sink_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// Records of a batch have offsets in another order than their own, since some arrived before the others were sent.
// Break it catches: a record that says that all in front of it have results while one comes later, or is known to be
// there and none of the batch. Seen to fail with offsets that are complete up to each record, and with Beyond and Open
// left out.
func TestEngineSaysUpToWhereResultsAreComplete(t *testing.T) {
	answers := []sink.Outcome{
		{Verdict: sink.NotWritten, Written: 1, Offsets: []int64{8}, Beyond: []sink.Placed{{Index: 2, Offset: 5}}, Open: 7},
		{Verdict: sink.NotWritten, Written: 1, Offsets: []int64{9}, Beyond: []sink.Placed{{Index: 1, Offset: 5}}, Open: 4},
		{Verdict: sink.Accepted, Offsets: []int64{5, 10}, Open: 7},
		{Verdict: sink.Accepted, Offsets: []int64{12, 7, 11}},
		{Verdict: sink.Accepted, Offsets: []int64{13, 14, 15}, Open: 16},
	}
	want := []int64{5, 4, 6, 7, 7, 8, 12, 14, 15, 16}
	config := sink.Config{Backoff: func(int) time.Duration { return time.Millisecond }}
	inRig(t, 1, config, func(sinktest.Attempt) sinktest.Plan {
		o := answers[0]
		answers = answers[1:]
		return sinktest.Plan{Outcome: o}
	}, func(t *testing.T, r *rig) {
		all := in(len(want))
		r.submit(all[:4]...)
		r.await(4, time.Minute)
		r.submit(all[4:7]...)
		r.await(3, time.Minute)
		r.submit(all[7:]...)
		r.await(3, time.Minute)
		synctest.Wait()
		for i, record := range all {
			if record.Result != sink.Published || record.Complete != want[i] {
				t.Errorf("record %d: got result %d at offset %d, complete up to %d; want %d", i, record.Result, record.Offset,
					record.Complete, want[i])
			}
		}
	})
}
