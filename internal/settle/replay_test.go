package settle

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// A dead letter is replayed while followers of another one of its key wait in memory. Break it catches: a retry
// handed in between two portions of these, which have one retry out at a time and would end the process. Seen to fail
// without the look into memory.
func TestReplayWaitsWhileFollowersWaitInMemory(t *testing.T) {
	l := settlerOf(config.Default(), nil, nil).loop
	k := laneName{topic: "t", key: "k"}
	l.lanes.byName[k] = &lane{}
	l.parking.take(retrierWord{portions: []store.Portion{{Lane: store.Lane{Topic: "t", Key: []byte("k")},
		Rows: []store.ParkedRow{{Due: true, Replay: true}}}}})
	if la := l.parking.lanes[k]; la == nil || !la.due || !la.waiting || la.out != 0 {
		t.Errorf("the lane: got %+v, want it due, waiting, nothing out", la)
	}
}
