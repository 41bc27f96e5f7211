package kafka

import (
	"testing"
	"time"

	"github.com/segmentio/kafka-go/protocol/metadata"
)

// Break caught: a broker that lags behind and makes a topic shrink until another one is asked: keys move to other
// partitions and back, with an alarm each time; a topic that was created again with fewer partitions and is never
// believed, or late although it was seen to be gone; a doubt that begins again with each leader that refuses. Seen to
// fail with the smaller number believed at once, with the doubt's time not kept (in advance, and in without) or not
// ended, with absence not looked at or forgotten by the next error, and with a view that is settled in doubt.
func TestFewerPartitionsAreDoubtedForAWhile(t *testing.T) {
	now := time.Now()
	partitions := func(n int, code int16) *metadata.Response {
		r := told(1, 5)
		r.Topics[0].ErrorCode, r.Topics[0].Partitions = code, nil
		for p := range n {
			r.Topics[0].Partitions = append(r.Topics[0].Partitions,
				metadata.ResponsePartition{PartitionIndex: int32(p), LeaderID: 1, LeaderEpoch: 5})
		}
		return r
	}
	want := func(v *view, n news, count, resizes int, when string) {
		t.Helper()
		if got := len(v.topics["t"].partitions); got != count || len(n.resizes) != resizes {
			t.Errorf("%s: got %d partitions and %d resizes, want %d and %d", when, got, len(n.resizes), count, resizes)
		}
	}
	six, _ := emptyView().advance(partitions(6, 0), now)
	stale, n := six.advance(partitions(3, 0), now)
	want(stale, n, 6, 0, "told by a broker that lags")
	if l := stale.topics["t"].partitions[5]; l.node != 1 || stale.changed != six.changed {
		t.Errorf("leader of a partition that it does not know: got %+v, want it as it was, and nobody woken", l)
	}
	if stale.settled([]string{"t"}, now) {
		t.Error("settled although a broker doubts the number of partitions")
	}
	fresh, n := stale.advance(partitions(6, 0), now)
	want(fresh, n, 6, 0, "told by one that does not lag")
	later, n := fresh.advance(partitions(3, 0), now.Add(doubtPatience))
	want(later, n, 6, 0, "told by one that lags, of which others knew better")
	stale, n = stale.without("t", 0, 1).advance(partitions(3, 0), now.Add(doubtPatience-time.Millisecond))
	want(stale, n, 6, 0, "told by brokers that lag still")
	again, n := stale.advance(partitions(3, 0), now.Add(doubtPatience))
	want(again, n, 3, 1, "told for so long that it must be another topic")
	if !again.settled([]string{"t"}, now) {
		t.Error("doubt stays although it was believed")
	}

	gone, n := six.advance(partitions(0, 3), now)
	want(gone, n, 6, 0, "gone")
	gone, n = gone.advance(partitions(0, 5), now)
	want(gone, n, 6, 0, "created again, and not led")
	again, n = gone.advance(partitions(3, 0), now)
	want(again, n, 3, 1, "created again")
	refused, _ := six.advance(partitions(0, 29), now)
	stale, n = refused.advance(partitions(3, 0), now)
	want(stale, n, 6, 0, "told by a broker that lags after one that refused")
}
