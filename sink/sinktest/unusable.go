package sinktest

import (
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
)

// unusable is a topic that was in use and is missing or forbidden from then on, while another one flows. Once the
// submitter diverts it, all of it must come back, what the driver has already had included; nothing of it may count as
// in flight; and it must show when the topic can be used again.
//
// Catches: a batch that stays with the driver although nothing of it is written; a topic that counts as well because
// nothing of it is there any more; an attempt to find out that is lost, or that costs an event its place.
func unusable(t *testing.T, f Fixture, ruin func(*testing.T, string) func()) {
	topic, other := f.Topic(t, 3), f.Topic(t, 1)
	b := newBench(t, f, sink.Config{})
	warm := numbered(topic, 30, 7)
	b.submit(warm...)
	b.collect(len(warm))
	cure := ruin(t, topic)

	parked, others := valued(topic, "held", 300, 7), numbered(other, 300, 7)
	for i := range parked {
		b.submit(parked[i], others[i])
	}
	keyless := valued(topic, "keyless", 20, 1)
	for _, r := range keyless {
		r.Key = nil
	}
	b.submit(keyless...)
	for _, r := range b.collect(len(others)) {
		if r.Topic != other || r.Result != sink.Published {
			t.Fatalf("record %q of %s: got result %d while its topic is unusable", r.Value, r.Topic, r.Result)
		}
	}
	b.awaitTrouble(topic)
	b.divertAll(topic, len(parked)+len(keyless))
	b.submit(valued(other, "after", 1, 1)...)
	b.want(b.collect(1), "P")

	next := map[string]int{} // of each lane
	if r := b.trouble(topic); r == nil || r.Well {
		t.Errorf("trouble of the diverted topic: got %+v, want it not well", r)
	} else if r.Probe {
		b.probe(topic, valued(topic, "held", 1, 1)[0], sink.Held)
	}
	cure()
	b.awaitWell(topic, parked, next)
	b.Divert(topic, sink.WholeTopic, false)
	for i, r := range valued(topic, "held", len(parked), 7) {
		if i/7 >= next[string(r.Key)] {
			b.resume(r)
		}
	}
	for _, r := range valued(topic, "keyless", len(keyless), 1) {
		r.Key = nil
		b.submit(r)
		b.want(b.collect(1), "P")
	}
	wantEach(t, f, topic, append(parked, keyless...))
}

// wantEach checks that the topic has each record, and once if the driver promises that.
func wantEach(t *testing.T, f Fixture, topic string, records []*sink.Record) {
	t.Helper()
	seen := map[string]int{}
	for _, m := range f.Read(t, topic) {
		seen[string(m.Value)]++
	}
	for _, r := range records {
		if n := seen[string(r.Value)]; n == 0 || n > 1 && f.Deduplicates {
			t.Errorf("record %q: got it %d times in the topic, want once", r.Value, n)
		}
	}
}

// divertAll diverts the topic; n of its records must come back.
func (b *bench) divertAll(topic string, n int) {
	b.t.Helper()
	b.Divert(topic, sink.WholeTopic, true)
	back := b.collect(n)
	for _, r := range back {
		if r.Result != sink.Held {
			b.t.Fatalf("record %q: got result %d, reason %v; want it held", r.Value, r.Result, r.Reason)
		}
	}
	b.Settled(back)
	if s := b.Status(); s.Pending != 0 || s.Unrecorded != 0 || s.Events != 0 || s.State != sink.OK {
		b.t.Errorf("status with all given back: got %+v, want nothing in flight", s)
	}
}

// valued is numbered with values of their own.
func valued(topic, what string, n, keys int) []*sink.Record {
	records := numbered(topic, n, keys)
	for i, r := range records {
		r.Value = fmt.Appendf(nil, "%s-%06d", what, i)
	}
	return records
}

// poll is the pause between two looks at the engine's troubles, which do not notify.
const poll = 20 * time.Millisecond

// trouble returns the engine's report of the topic itself, nil if there is none.
func (b *bench) trouble(topic string) *sink.TroubleReport {
	for _, r := range b.Troubles() {
		if r.Topic == topic && r.Partition == sink.WholeTopic {
			return &r
		}
	}
	return nil
}

func (b *bench) awaitTrouble(topic string) {
	b.t.Helper()
	for {
		if r := b.trouble(topic); r != nil && !r.Well && !r.Since.IsZero() && r.Kind == sink.TopicTrouble {
			return
		}
		b.pause("trouble of the topic")
	}
}

// awaitWell waits until the topic counts as well, and hands in the head of a lane whenever the engine asks for a probe.
func (b *bench) awaitWell(topic string, parked []*sink.Record, next map[string]int) {
	b.t.Helper()
	for r := b.trouble(topic); r == nil || !r.Well; r = b.trouble(topic) {
		b.pause("the topic to be well")
		if r == nil || !r.Probe {
			continue
		}
		for i := range 7 { // one of the lanes is in the partition that has to show
			key := string(parked[i].Key)
			probe := valued(topic, "held", len(parked), 7)[next[key]*7+i]
			if b.probe(topic, probe, sink.None) == sink.Published {
				next[key]++
			}
		}
	}
}

// probe hands in a lane's head and returns its result, which must be the one wanted unless that is None.
func (b *bench) probe(topic string, r *sink.Record, want sink.Result) sink.Result {
	b.t.Helper()
	if err := b.Resume(topic, r.Key, []*sink.Record{r}); err != nil {
		b.t.Fatalf("probe: %v", err)
	}
	got := b.collect(1)[0]
	if got.Result != sink.Published {
		b.Settled([]*sink.Record{got})
	}
	if got.Result == sink.Rejected || want != sink.None && got.Result != want {
		b.t.Fatalf("probe: got result %d, reason %v; want %d", got.Result, got.Reason, want)
	}
	return got.Result
}

// resume hands in the next of a held lane and waits until it is published.
func (b *bench) resume(r *sink.Record) {
	b.t.Helper()
	if err := b.Resume(r.Topic, r.Key, []*sink.Record{r}); err != nil {
		b.t.Fatalf("resume: %v", err)
	}
	b.want(b.collect(1), "P")
}

func (b *bench) pause(what string) {
	b.t.Helper()
	select {
	case <-time.After(poll):
	case <-b.context.Done():
		b.t.Fatalf("wait for %s: troubles %+v, status %+v", what, b.Troubles(), b.Status())
	}
}
