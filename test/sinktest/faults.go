package sinktest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/sink"
)

// oversized makes a record that is one byte too large, or skips the test when the topic knows no limit. It sends a
// record first, because a driver may learn the limits with the topic.
func oversized(b *bench, f Fixture, topic, key string) *sink.Record {
	b.t.Helper()
	b.submit(record(topic, key, "000000000"))
	b.want(b.collect(1), "P")
	_, limit := f.Driver.Limits(topic)
	if limit <= 0 {
		b.t.Skip("the driver knows no limit of a record")
	}
	r := record(topic, key, "")
	r.Value = make([]byte, limit+1)
	r.Cost = limit + 1000
	return r
}

// Catches: a rejection that overtakes earlier records of the lane, a lane that is not held, other lanes that are.
func oversizedRecord(t *testing.T, f Fixture) {
	topic := f.Topic(t, 1)
	b := newBench(t, f, sink.Config{MaxBytes: 256 << 20})
	big := oversized(b, f, topic, "a")
	records := []*sink.Record{
		record(topic, "a", "000000001"), record(topic, "b", "000000002"), big,
		record(topic, "a", "000000004"), record(topic, "b", "000000005"), record(topic, "a", "000000006"),
	}
	b.submit(records...)
	got := b.collect(len(records))
	b.want(records, "PPRHPH")
	var lane []*sink.Record
	for _, r := range got {
		if string(r.Key) == "a" {
			lane = append(lane, r)
		}
	}
	if b.want(lane, "PRHH"); lane[0] != records[0] || lane[1] != big || lane[2] != records[3] || lane[3] != records[5] {
		t.Error("results of the lane did not come in submit order")
	}
	if big.Reason == nil || big.Reason.Code != "MESSAGE_TOO_LARGE" {
		t.Errorf("reason: got %v, want MESSAGE_TOO_LARGE", big.Reason)
	}
	if in := f.Read(t, topic); len(in) != 4 {
		t.Errorf("topic: got %d messages, want 4", len(in))
	}
}

// Catches: Release with records still out or with an old generation; Retry past its rules; a retry that overtakes.
func heldLane(t *testing.T, f Fixture) {
	topic := f.Topic(t, 1)
	b := newBench(t, f, sink.Config{MaxBytes: 256 << 20})
	lane, other := sink.Lane{Topic: topic, Key: []byte("a")}, sink.Lane{Topic: topic, Key: []byte("b")}
	big := oversized(b, f, topic, "a")
	r2, r3, r4 := record(topic, "a", "000000002"), record(topic, "a", "000000003"), record(topic, "a", "000000004")
	b.submit(big, r2)
	b.collect(2)
	b.want([]*sink.Record{big, r2}, "RH")
	b.submit(r3)
	b.want(b.collect(1), "H")
	first := r3.Generation

	refused := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", what, err, want)
		}
	}
	refused("retry of a lane that is not held", b.Retry(other, first, []*sink.Record{r2}), sink.ErrNotHeld)
	refused("retry with a wrong generation", b.Retry(lane, first+1, []*sink.Record{r2}), sink.ErrStaleGeneration)
	if b.Release(lane, first) {
		t.Error("release with three records out: got true")
	}
	refused("retry", b.Retry(lane, first, []*sink.Record{big, r2}), nil)
	b.collect(2)
	b.want([]*sink.Record{big, r2}, "RH")
	second := big.Generation
	if second <= first {
		t.Errorf("generation after a second rejection: got %d, want more than %d", second, first)
	}
	refused("retry with the old generation", b.Retry(lane, first, []*sink.Record{r2}), sink.ErrStaleGeneration)
	b.Settled([]*sink.Record{big})
	refused("retry", b.Retry(lane, second, []*sink.Record{r2, r3}), nil)
	b.want(b.collect(2), "PP")
	if b.Release(lane, first) {
		t.Error("release with the old generation: got true")
	}
	if !b.Release(lane, second) {
		t.Error("release with nothing out: got false")
	}
	b.submit(r4)
	b.want(b.collect(1), "P")
	if in := f.Read(t, topic); len(in) != 4 || string(in[1].Value) != "000000002" || string(in[3].Value) != "000000004" {
		t.Errorf("topic: got %d messages %v, want 4 in order", len(in), in)
	}
}

// Catches: a rejection that takes neighbours with it, or is put on the wrong record.
func poisonInAFullBatch(t *testing.T, f Fixture) {
	if f.Poison == nil {
		t.Skip("the fixture has no poison")
	}
	const n, keys = 2000, 50
	topic := f.Topic(t, 1)
	b := newBench(t, f, sink.Config{})
	records := numbered(topic, n, keys)
	poison := f.Poison(topic, []byte("key-7"))
	records[1007] = poison // of key-7
	b.submit(records...)
	b.collect(n)
	for i, r := range records {
		want := sink.Published
		switch {
		case r == poison:
			want = sink.Rejected
		case i > 1007 && i%keys == 7 && poison.Key != nil:
			want = sink.Held
		}
		if r.Result != want {
			t.Errorf("record %d of %s: got result %d, want %d; reason %v", i, r.Key, r.Result, want, r.Reason)
		}
	}
	if poison.Reason == nil || poison.Reason.Code == "" || poison.Reason.Text == "" {
		t.Errorf("reason of the poison: got %+v, want code and text", poison.Reason)
	}
}

// Catches: an answer that got lost taken for a failure, or a resend that is not the same batch.
func lostAnswers(t *testing.T, f Fixture) {
	if f.LoseAnswers == nil {
		t.Skip("the fixture cannot lose answers")
	}
	topic := f.Topic(t, 3)
	b := newBench(t, f, sink.Config{})
	records := numbered(topic, 3000, 20)
	for i := 0; i < len(records); i += 300 {
		f.LoseAnswers(2)
		b.submit(records[i : i+300]...)
		b.collect(300)
	}
	wantInTopic(t, f, topic, records)
}

// Catches: trouble of the broker that becomes a result, or that the engine does not get over by itself.
func outage(t *testing.T, f Fixture) {
	if f.Outage == nil {
		t.Skip("the fixture cannot go away")
	}
	topic := f.Topic(t, 3)
	b := newBench(t, f, sink.Config{})
	records := numbered(topic, 3000, 20)
	b.submit(records[:1000]...)
	b.collect(1000)
	end := f.Outage()
	b.submit(records[1000:]...)
	end()
	for _, r := range b.collect(2000) {
		if r.Result != sink.Published {
			t.Fatalf("record %q: got result %d, want published", r.Value, r.Result)
		}
	}
	wantInTopic(t, f, topic, records)
}

// Catches: records that stay with the old leader, or overtake on the way to the new one.
func leaderMove(t *testing.T, f Fixture) {
	if f.MoveLeader == nil {
		t.Skip("the fixture cannot move leaders")
	}
	const partitions = 3
	topic := f.Topic(t, partitions)
	b := newBench(t, f, sink.Config{})
	records := numbered(topic, 3000, 20)
	for i := 0; i < len(records); i += 500 {
		b.submit(records[i : i+500]...)
		f.MoveLeader(t, topic, int32(i/500%partitions))
	}
	b.collect(len(records))
	wantInTopic(t, f, topic, records)
}

// Catches: records of an unknown topic that are lost, reordered, or delay others.
func missingTopic(t *testing.T, f Fixture) {
	if f.MissingTopic == nil {
		t.Skip("the fixture cannot name a missing topic")
	}
	topic := f.Topic(t, 1)
	missing, create := f.MissingTopic(t)
	b := newBench(t, f, sink.Config{})
	late, other := numbered(missing, 300, 7), numbered(topic, 300, 7)
	for i := range late {
		b.submit(late[i], other[i])
	}
	for i, r := range b.collect(len(other)) {
		if r.Topic != topic {
			t.Fatalf("result %d: got topic %s before it exists", i, r.Topic)
		}
	}
	for s := b.Status(); s.State != sink.Stalled; s = b.Status() {
		b.pause("the state stalled")
	}
	if s := b.Status(); s.Pending != len(late) {
		t.Errorf("status: got %+v, want %d pending", s, len(late))
	}
	create()
	b.want(b.collect(len(late))[:3], "PPP")
	wantInTopic(t, f, missing, late)
	wantInTopic(t, f, topic, other)
}

// String names the message in failures.
func (m Message) String() string {
	return fmt.Sprintf("%s/%d@%d %s=%.30q", m.Topic, m.Partition, m.Offset, m.Key, m.Value)
}
