package kafka

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// Break it catches: the brokers asked for every topic whenever one more is named, which with thousands of them leaves
// no time for anything else. Seen to fail with all topics asked for.
func TestBrokersAreAskedForNewTopicsAlone(t *testing.T) {
	const n = 200
	topics := make([]string, n)
	for i := range topics {
		topics[i] = fmt.Sprint("many", i)
	}
	c := newFake(t, kfake.SeedTopics(1, topics...))
	s := newSpy(c)
	d := newDriver(t, c.ListenAddrs(), nil)
	began := time.Now()
	for _, topic := range topics {
		awaitTopic(t, d, topic)
	}
	turns := 3 + int(time.Since(began)/time.Second) // all of them are asked for now and then
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := 0
	for _, r := range s.metadata {
		asked += len(r.Topics)
	}
	if asked > turns*n {
		t.Errorf("metadata requests: got %d names for %d topics, want no more than %d", asked, n, turns*n)
	}
}
