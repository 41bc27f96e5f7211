package settle

import (
	"context"
	"testing"

	"github.com/cdc-relay/cdc-relay/config"
)

// portionTables has so many portions of parked events that wait for a topic.
type portionTables struct {
	Tables
	portions int
}

func (t *portionTables) MakeDue(context.Context, string) (more bool, err error) {
	t.portions--
	return t.portions > 0, nil
}

// Break caught: the first portion of what waits for a topic that is well made due, and the rest left to the next
// tidying, half a minute later, portion by portion. Seen to fail so.
func TestAllThatWaitsForATopicIsMadeDue(t *testing.T) {
	tables := &portionTables{portions: 3}
	retrier := settlerOf(config.Default(), nil, tables).retrier
	retrier.isWell("t")
	for rounds := 0; rounds < 3; rounds++ {
		select {
		case <-retrier.wake:
		default:
			t.Fatalf("after %d rounds: got no wish for another one, want it while %d portions are left", rounds, tables.portions)
		}
		if !retrier.makeDue(t.Context()) {
			t.Fatal("make due: got the end of the context, want more to do")
		}
	}
	if len(retrier.well) != 0 || tables.portions != 0 {
		t.Errorf("in the end: got %d topics and %d portions left, want none", len(retrier.well), tables.portions)
	}
}
