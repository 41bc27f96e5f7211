package sinktest

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// A term that could not read the topic back sends once more what it does not know to be there.
//
// Catches: a record that is appended although it is there; one that is told of at another place; a reading that begins
// behind the first that is not journaled.
func deferred(t *testing.T, f Fixture) {
	d, can := f.Driver.(sink.Deferrer)
	if !can {
		t.Skip("the driver cannot read a topic later")
	}
	const known, unknown, fresh = 5, 700, 20 // more than one portion
	topic := f.Topic(t, 1)
	b := newBench(t, f, sink.Config{})
	before := numbered(topic, known+unknown, 7)
	sentWith(before, "16/B374D848/4", "system/1/77", "1")
	b.submit(before...)
	there := map[string]int64{}
	first := int64(0)
	for i, r := range b.collect(known + unknown) {
		if there[string(r.Value)] = r.Offset; i == known {
			first = r.Offset
		}
	}
	d.(sink.Leaver).Left()
	if !d.Defer(b.context, sink.TailQuery{Topic: topic, From: map[int32]int64{0: first}}) {
		t.Fatal("defer: got false, want true: it is said where to begin")
	}
	all := append(before[:known:known], numbered(topic, known+unknown+fresh, 7)[known:]...)
	sentWith(all[known:], "table/2/9", "system/2/77", "2")
	for _, r := range all[known:] {
		r.Headers.Add("x-outbox-late", []byte("1"))
		r.Headers.Add("x-outbox-retry", []byte("2"))
	}
	b.submit(all[known:]...)
	for _, r := range b.collect(unknown + fresh) {
		if was, is := there[string(r.Value)]; is && r.Offset != was {
			t.Errorf("record %s: got it at %d, want %d as before", r.Value, r.Offset, was)
		}
	}
	wantInTopic(t, f, topic, all)
}

// sentWith gives the records headers that differ between two relays, or two terms, that send the same event.
func sentWith(records []*sink.Record, position, source, epoch string) {
	for _, r := range records {
		r.Headers = outbox.HeadersIn(nil)
		r.Headers.Add("id", r.Value)
		r.Headers.Add("x-outbox-position", []byte(position))
		r.Headers.Add(sourceHeader, []byte(source))
		r.Headers.Add("x-outbox-epoch", []byte(epoch))
	}
}
