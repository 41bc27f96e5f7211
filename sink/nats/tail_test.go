package nats_test

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// The servers were away when a topic was to be read back, so that its stream is not even known. Breaks it catches:
// events that the dead process had sent and that come twice; a topic that waits forever. Seen to fail with what was
// deferred forgotten once the stream is known.
func TestDeferredTopicWaitsForItsStream(t *testing.T) {
	withEachKind(t, func(t *testing.T, b *bed) {
		const known, sent, n = 10, 300, 400
		subject := b.topic(t)
		sinktest.NewFlow(t, b.driver(t)).Send(sinktest.Events(subject, 0, sent))
		d, end := b.driver(t), b.proxy.Outage()
		// An error, if the first attempt to connect has failed by now.
		if n, err := d.Partitions(subject); n != 0 {
			t.Errorf("partitions before anybody has answered: got %d, %v, want 0", n, err)
		}
		if !d.Defer(t.Context(), sink.TailQuery{Topic: subject, From: map[int32]int64{0: known + 1}}) {
			t.Error("defer: got false, want true: it is said where to begin")
		}
		if d.Defer(t.Context(), sink.TailQuery{Topic: subject + "-none"}) {
			t.Error("defer without a beginning: got true")
		}
		end()
		sinktest.NewFlow(t, d).Send(sinktest.Events(subject, known, n-known))
		sinktest.WantOnceInOrder(t, b.read(t, subject), n)
	})
}
