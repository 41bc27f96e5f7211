package sinktest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
)

// unusable is a topic that becomes missing or forbidden while it is written to, and another one that flows. Once the
// submitter diverts it, all of it must come back, what the driver has already had included; nothing of it may count as
// in flight; it must show when the topic can be used again; and then each record is written, in its lane's order.
//
// Catches: a batch that stays with the driver although nothing of it is written, or although its topic is gone; a topic
// that counts as well because nothing of it is there any more; an attempt to find out that is lost, or that costs an
// event its place. Seen to fail with batches that are not given back, and with those only that are certainly not
// written, for each driver whose topics can be gone.
func unusable(t *testing.T, f Fixture, ruin func(*testing.T, string) func()) {
	topic, other := f.Topic(t, 3), f.Topic(t, 1)
	b := newBench(t, f, sink.Config{})
	warm := numbered(topic, 30, 7)
	b.submit(warm...)
	b.collect(len(warm))
	all := valued(topic, "a", 210, 7)
	b.submit(all...)
	cure := ruin(t, topic)

	later, others := valued(topic, "b", 300, 7), numbered(other, 300, 7)
	for i := range later {
		b.submit(later[i], others[i])
	}
	keyless := valued(topic, "c", 20, 1)
	for _, r := range keyless {
		r.Key = nil
	}
	b.submit(keyless...)
	all = append(append(all, later...), keyless...)

	aside, flowed := parked{bench: b, lanes: map[string][]*sink.Record{}}, 0
	for flowed < len(others) {
		for _, r := range b.results() {
			if r.Topic == other {
				flowed++
			} else {
				aside.published++
			}
			if r.Result != sink.Published {
				t.Fatalf("record %q of %s: got result %d, reason %v, before its topic is diverted", r.Value, r.Topic, r.Result,
					r.Reason)
			}
		}
	}
	b.awaitTrouble(topic)
	aside.divert(topic, len(all))
	b.submit(valued(other, "z", 1, 1)...)
	b.want(b.collect(1), "P")

	if r := b.trouble(topic); r == nil || r.Well {
		t.Errorf("trouble of the diverted topic: got %+v, want it not well", r)
	} else if r.Probe && aside.probe(aside.keys()[0]) {
		t.Error("probe: got its event published before the topic can be used")
	}
	cure()
	aside.awaitWell(topic)
	b.Divert(topic, sink.WholeTopic, false)
	aside.resume()
	aside.wantInTopic(f, topic)
}

// parked is a submitter's state of a diverted topic.
type parked struct {
	*bench
	published int                       // before the topic was diverted
	all       []*sink.Record            // that came back
	lanes     map[string][]*sink.Record // what is left of them, in order
	keyless   []*sink.Record
}

// divert diverts the topic. Of its n records all that were not published must come back.
func (p *parked) divert(topic string, n int) {
	p.t.Helper()
	p.Divert(topic, sink.WholeTopic, true)
	for p.published+len(p.all) < n {
		for _, r := range p.results() {
			switch r.Result {
			case sink.Published:
				p.published++
			case sink.Held:
				p.all = append(p.all, r)
			default:
				p.t.Fatalf("record %q: got result %d, reason %v; want it held", r.Value, r.Result, r.Reason)
			}
		}
	}
	for i, r := range p.all {
		again := &sink.Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Cost: r.Cost, Headers: r.Headers,
			Timestamp: r.Timestamp}
		p.Settled([]*sink.Record{r})
		if p.all[i] = again; again.Key == nil {
			p.keyless = append(p.keyless, again)
		} else {
			p.lanes[string(again.Key)] = append(p.lanes[string(again.Key)], again)
		}
	}
	for _, lane := range p.lanes { // what waits may come back before what was sent
		slices.SortFunc(lane, func(a, b *sink.Record) int { return bytes.Compare(a.Value, b.Value) })
	}
	if s := p.Status(); s.Pending != 0 || s.Unrecorded != 0 || s.Events != 0 || s.State != sink.OK {
		p.t.Errorf("status with all given back: got %+v, want nothing in flight", s)
	}
}

// keys returns the keys of lanes with events left.
func (p *parked) keys() (keys []string) {
	for key, lane := range p.lanes {
		if len(lane) > 0 {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// probe hands in a lane's head and reports whether it was published; else it is still the head.
func (p *parked) probe(key string) bool {
	p.t.Helper()
	r := p.lanes[key][0]
	if err := p.Resume(sink.Lane{Topic: r.Topic, Key: r.Key}, []*sink.Record{r}); err != nil {
		p.t.Fatalf("probe: %v", err)
	}
	got := p.collect(1)[0]
	switch got.Result {
	case sink.Published:
		p.lanes[key] = p.lanes[key][1:]
		return true
	case sink.Held:
		p.Settled([]*sink.Record{got})
		return false
	}
	p.t.Fatalf("probe: got result %d, reason %v", got.Result, got.Reason)
	return false
}

// awaitWell waits until the topic counts as well, and hands in the heads of all lanes whenever the engine asks for a
// probe: one of them is in the partition that has to show.
func (p *parked) awaitWell(topic string) {
	p.t.Helper()
	for r := p.trouble(topic); r == nil || !r.Well; r = p.trouble(topic) {
		p.pause("the topic to be well")
		if r == nil || !r.Probe {
			continue
		}
		for _, key := range p.keys() {
			p.probe(key)
		}
	}
}

// resume hands in what is left.
func (p *parked) resume() {
	p.t.Helper()
	for _, key := range p.keys() {
		for len(p.lanes[key]) > 0 {
			if !p.probe(key) {
				p.t.Fatalf("lane %s: got its head held, want it published: the topic is well", key)
			}
		}
	}
	for _, r := range p.keyless {
		p.submit(r)
		p.want(p.collect(1), "P")
	}
}

// wantInTopic checks that the topic has each record that came back, once if the driver promises that, in the order of
// their keys.
func (p *parked) wantInTopic(f Fixture, topic string) {
	p.t.Helper()
	seen, last := map[string]int{}, map[string][]byte{}
	for _, m := range f.Read(p.t, topic) {
		if seen[string(m.Value)]++; seen[string(m.Value)] > 1 || m.Key == nil {
			continue
		}
		if bytes.Compare(m.Value, last[string(m.Key)]) < 0 {
			p.t.Errorf("order of %q: got %q after %q", m.Key, m.Value, last[string(m.Key)])
		}
		last[string(m.Key)] = m.Value
	}
	for _, r := range p.all {
		if n := seen[string(r.Value)]; n == 0 || n > 1 && f.Deduplicates {
			p.t.Errorf("record %q: got it %d times in the topic, want once", r.Value, n)
		}
	}
}

// results waits for results and settles those that were published.
func (b *bench) results() []*sink.Record {
	b.t.Helper()
	some, err := b.next()
	if err != nil {
		b.t.Fatalf("results: %v; troubles %+v, status %+v", err, b.Troubles(), b.Status())
	}
	for _, r := range some {
		if r.Result == sink.Published {
			b.Settled([]*sink.Record{r})
		}
	}
	return some
}

// valued is numbered with values of their own, which sort behind those of numbered.
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

func (b *bench) pause(what string) {
	b.t.Helper()
	time.Sleep(poll)
	if b.pauses++; b.pauses > int(patience/poll) {
		b.t.Fatalf("wait for %s: troubles %+v, status %+v", what, b.Troubles(), b.Status())
	}
}
