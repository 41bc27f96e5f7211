package settle

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

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

// toldHost has no session, and notes what is said to be recorded.
type toldHost struct {
	nobody
	recorded chan string
}

func (h toldHost) Recorded(what string) {
	select {
	case h.recorded <- what:
	default:
	}
}

// While what was redelivered is not parked yet, nothing of what is parked is asked for, which can take minutes. Break
// it catches: a relay that has an answer of before its last session called a trouble of the present one, and so is not
// ready. Seen to fail with the trouble left as it was.
func TestTroubleWithParkedEventsEndsWithTheirSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := settlerOf(config.Default(), nil, nil)
		host := toldHost{recorded: make(chan string, 1)}
		s.host = host
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.retrier.run(ctx)
		}()
		select {
		case what := <-host.recorded:
			if what != "retry" {
				t.Errorf("got an end of the trouble with %q, want that of retries", what)
			}
		case <-time.After(time.Minute):
			t.Error("after a minute without a session: got no end of the trouble with retries, want one")
		}
		stop()
		<-ended
	})
}
