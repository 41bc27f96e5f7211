package settle

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Each partition of a topic is probed in turns of its own, with a lane of its own or one of the topic. Break it
// catches: a partition that stays in trouble and takes the turns of all others, which then stay parked. Seen to fail
// with one time for all partitions of a topic.
func TestProbingGivesEachPartitionItsTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p probing
		any := store.Lane{Topic: "t", Key: []byte("any")}
		p.remember(any, sink.WholeTopic)
		for partition := range int32(2) {
			p.remember(store.Lane{Topic: "t", Key: []byte{byte('0' + partition)}}, partition)
		}
		turns := [3]int{}
		for range 40 { // 10 seconds
			time.Sleep(diverterTick)
			for partition := range int32(3) {
				lane, known, due := p.due("t", partition)
				want := string(rune('0' + partition))
				if partition == 2 {
					want = "any"
				}
				if !known || string(lane.Key) != want {
					t.Fatalf("partition %d: got lane %q, known %v; want %s", partition, lane.Key, known, want)
				}
				if due {
					turns[partition]++
				}
			}
		}
		if turns != [3]int{5, 5, 5} { // after 0.5, 1, 2, 4 and 8 seconds
			t.Errorf("turns: got %v, want 5 each", turns)
		}
		p.forget(any)
		if _, known, _ := p.due("t", 2); known {
			t.Error("partition 2: got a lane that was forgotten")
		}
		if _, known, _ := p.due("t", 1); !known {
			t.Error("partition 1: got no lane, want its own")
		}
	})
}
