package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cdc-relay/cdc-relay/sink"
)

// Break caught: a batch that may have been written, and is taken when its broker may have forgotten that (a day after
// its newest timestamp), so that it is in the topic twice and no one counts it; one that counts although the broker
// knows it. Seen to fail with nothing counted, with only one of the two times looked at, with the time of the latest
// doubt, with the oldest timestamp instead of the newest, and with batches that count without a doubt.
func TestBatchThatItsBrokerMayHaveForgottenIsAPossibleDuplicate(t *testing.T) {
	const old = producerMemory + time.Minute
	for _, c := range []struct {
		what       string
		newest     time.Duration // age of its newest timestamp
		uncertain  time.Duration // since when it is; 0: it is not
		duplicates uint64
	}{
		{"uncertain for a moment", 0, time.Second, 0},
		{"uncertain for a day", 0, old, 2},
		{"of an old event, uncertain for a moment", old, time.Second, 2},
		{"of an old event, taken at once", old, 0, 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			fake, d, s, o := sequenceBench(t)
			b := newBatch(d, "t", 0, "c", "d")
			b.Records[0].Timestamp = time.Now().Add(-2 * old).UnixMilli()
			b.Records[1].Timestamp = time.Now().Add(-c.newest).UnixMilli()
			stamps := "A0 A2 "
			if c.uncertain > 0 {
				fault(fake, kerr.RequestTimedOut) // appended
				wantVerdict(t, send(t, d, b), sink.Unknown)
				a := b.State.(*attempt)
				a.since = a.since.Add(-c.uncertain)
				fault(fake, kerr.RequestTimedOut)
				wantVerdict(t, send(t, d, b), sink.Unknown)
				stamps += "A2 A2 "
			}
			wantAccepted(t, send(t, d, b), 2)
			wantAccepted(t, send(t, d, newBatch(d, "t", 0, "e")), 4)
			if got := d.Stats().PossibleDuplicates; got != c.duplicates {
				t.Errorf("possible duplicates: got %d, want %d", got, c.duplicates)
			}
			if c.duplicates == 0 {
				s.wantStamps(t, stamps+"A4")
				return
			}
			s.wantStamps(t, stamps+"B0")
			if len(o.resets) != 1 || o.resets[0] != (Reset{"t", 0, "PRODUCER_ID_EXPIRED", 2}) {
				t.Errorf("resets: got %+v, want one with 2 uncertain records", o.resets)
			}
		})
	}
}
