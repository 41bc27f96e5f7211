package nats_test

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// A relay dies behind a stream that was created again, and has noted how far it was in the stream before. Breaks it
// catches: events of the new stream that are not read back, and come twice. Seen to fail with the sequence taken as it
// is.
func TestTailReadsAStreamThatWasCreatedAgain(t *testing.T) {
	withEachKind(t, func(t *testing.T, b *bed) {
		const sent = 50
		subject := b.topic(t)
		sinktest.NewFlow(t, b.driver(t)).Send(sinktest.Events(subject, 0, sent))
		d := b.driver(t)
		defer func() { _ = d.Close() }()
		for from, want := range map[int64]int{1: sent, sent: 1, sent + 1: 0, sent + 2: sent, 10 * sent: sent} {
			got := 0
			err := d.Tail(t.Context(), sink.TailQuery{Topic: subject, From: map[int32]int64{0: from}},
				func(sink.TailRecord) error { got++; return nil })
			if err != nil || got != want {
				t.Errorf("from %d, where the stream ends with %d: got %d records, %v; want %d", from, sent, got, err, want)
			}
		}
	})
}

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
