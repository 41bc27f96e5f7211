package sink_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
)

// Breaks it catches: an outage that begins again at each failed attempt, one that does not end, an answer from before
// the question that counts. Seen to fail with each of the three fields left alone by Reached, and without the look at
// since.
func TestAnOutageLastsFromTheFirstFailureToTheNextAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c sink.Contact
		if since, err := c.Unreachable(); err != nil || !since.IsZero() || c.AnsweredSince(time.Now().Add(-time.Hour)) {
			t.Errorf("before anything was heard: away since %v (%v), or it has answered", since, err)
		}
		first, second := errors.New("first"), errors.New("second")
		began := time.Now()
		c.Lost(first)
		time.Sleep(time.Second)
		c.Lost(second)
		if since, err := c.Unreachable(); err != second || !since.Equal(began) {
			t.Errorf("away since %v (%v), want since %v for the second reason", since, err, began)
		}
		asked := time.Now()
		time.Sleep(time.Second)
		c.Reached()
		if since, err := c.Unreachable(); err != nil || !since.IsZero() {
			t.Errorf("after an answer it is away since %v (%v)", since, err)
		}
		if !c.AnsweredSince(asked) || c.AnsweredSince(time.Now()) {
			t.Error("it has answered after the question and not after now")
		}
		c.Lost(first)
		if c.AnsweredSince(asked) {
			t.Error("what cannot be reached is not known to answer")
		}
	})
}
