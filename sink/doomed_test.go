package sink_test

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// Catches: a doomed record that is sent, that is rejected before what is in front of it is published or after what is
// behind it was sent (seen to fail with a reason that is forgotten), or that a diversion leaves in its topic's queue.
func TestEngineRejectsADoomedRecordInItsTurn(t *testing.T) {
	why := &sink.Reason{Class: outbox.Permanent, Code: "NO_MESSAGE", Text: "it is none"}
	inRig(t, 1, sink.Config{}, func(sinktest.Attempt) sinktest.Plan {
		return sinktest.Plan{}
	}, func(t *testing.T, r *rig) {
		lane := keyed("k", 5)
		lane[2].Doomed, lane[2].Reason = true, why
		r.submit(lane...)
		var got []sink.Result
		for _, rec := range r.await(5, time.Second) {
			got = append(got, rec.Result)
		}
		want := []sink.Result{sink.Published, sink.Published, sink.Rejected, sink.Held, sink.Held}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("results: got %v, want %v", got, want)
			}
		}
		if lane[2].Reason != why || lane[3].Reason != nil {
			t.Errorf("reasons: got %v and %v, want its own and none", lane[2].Reason, lane[3].Reason)
		}
		r.Settled(lane[2:])

		absent := keyed("x", 2)
		absent[0].Topic, absent[1].Topic, absent[1].Doomed, absent[1].Reason = "absent", "absent", true, why
		r.submit(absent...)
		r.Divert("absent", sink.WholeTopic, true)
		allHeld(t, r.await(2, time.Nanosecond))
	})
}
