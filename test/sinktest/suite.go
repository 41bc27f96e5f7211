// Package sinktest proves drivers and the engine: [Run] is the conformance suite that every [sink.Driver] passes, and
// [Broker] a broker in memory whose answers a test chooses and which checks that the engine keeps the driver's rules.
//
// Tested by the drivers that run it; [Broker] in broker_test.go.
package sinktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Fixture is a driver with its broker, made for one test of the suite. The engine closes the driver; whatever else was
// started, the maker stops by t.Cleanup.
type Fixture struct {
	Driver sink.Driver
	// Topic makes a new topic and returns its name.
	Topic func(t *testing.T, partitions int) string
	// Read returns all that is in the topic, each partition in order.
	Read func(t *testing.T, topic string) []Message
	// Deduplicates reports that the driver and its broker write a batch once, however often it is sent.
	Deduplicates bool
	// Lacks lists features that the broker's messages do not have.
	Lacks Lacks
	// Copies reports that the driver copies the record's headers as they are, and does not look into them.
	Copies bool
	// Name is a header's name as readers see it, and whether a row can set it. Nil: each, as it is.
	Name func(name string) (seen string, carried bool)

	// The rest is optional; tests that need what is nil are skipped.

	// Poison makes a record that only the broker rejects.
	Poison func(topic string, key []byte) *sink.Record
	// LoseAnswers makes the answers of the next n requests get lost after the broker did its part.
	LoseAnswers func(n int)
	// Outage makes the broker unreachable until end is called.
	Outage func() (end func())
	// MoveLeader gives the partition another leader.
	MoveLeader func(t *testing.T, topic string, partition int32)
	// MissingTopic returns the name of a topic that does not exist, and what makes it, with 3 partitions.
	MissingTopic func(t *testing.T) (name string, create func())
	// Ruins are ways in which a topic that is in use becomes unusable, by name: what ruins it, and what cures that.
	Ruins map[string]func(t *testing.T, topic string) (cure func())
}

// Lacks lists features that a broker's messages do not have; the driver's documentation describes them.
type Lacks struct {
	Timestamps  bool // no time of ours
	NullHeaders bool // a header that is null is read as empty
	HeaderOrder bool // headers are read in another order
	TopicOrder  bool // a topic cannot have one partition alone, and only the records of a key have an order
}

// patience bounds every single wait of the suite; nothing takes a fraction of it unless it is broken. No bound is on a
// test as a whole, which takes long on a busy machine.
const patience = 60 * time.Second

// Run runs the suite. It calls newFixture for each of its tests.
func Run(t *testing.T, newFixture func(*testing.T) Fixture) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Fixture)
	}{
		{"EveryRecordOnceInOrderOfItsKey", everyRecordOnceInOrder},
		{"BytesArriveAsTheyAre", bytesArriveAsTheyAre},
		{"OddRecordsArriveAsTheyAreOrAreRefused", odd},
		{"APanicCostsItsRecordOnly", panics},
		{"OversizedRecordIsRejectedAtItsPlace", oversizedRecord},
		{"HeldLaneWaitsForRelease", heldLane},
		{"PoisonInAFullBatchHurtsOnlyItsLane", poisonInAFullBatch},
		{"LostAnswersLoseNothing", lostAnswers},
		{"OutagePasses", outage},
		{"LeaderMovePasses", leaderMove},
		{"RecordsOfAMissingTopicWait", missingTopic},
		{"WindowBlocks", windowBlocks},
		{"DeferredTopicIsReadFirst", deferred},
		{"CloseEnds", closeEnds},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, newFixture(t)) })
	}
	for name := range newFixture(t).Ruins {
		t.Run("NothingOfAnUnusableTopicStays/"+name, func(t *testing.T) {
			f := newFixture(t)
			unusable(t, f, f.Ruins[name])
		})
	}
}

// bench is an engine on the fixture's driver, with what came out of it.
type bench struct {
	*sink.Engine
	t       *testing.T
	context context.Context // until the test ends
	pauses  int             // since the last result
}

func newBench(t *testing.T, f Fixture, c sink.Config) *bench {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b := &bench{Engine: sink.New(f.Driver, c), t: t, context: ctx}
	t.Cleanup(func() {
		defer cancel()
		if err := b.close(); err != nil {
			t.Errorf("close the engine: %v", err)
		}
	})
	return b
}

func (b *bench) close() error {
	ctx, cancel := context.WithTimeout(b.context, patience)
	defer cancel()
	return b.Close(ctx)
}

// next waits for results.
func (b *bench) next() ([]*sink.Record, error) {
	ctx, cancel := context.WithTimeout(b.context, patience)
	defer cancel()
	b.pauses = 0
	return b.Results(ctx, nil)
}

func (b *bench) submit(records ...*sink.Record) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.context, patience)
	defer cancel()
	if taken, err := b.Submit(ctx, records); err != nil {
		b.t.Fatalf("submit: got %d of %d records taken: %v", taken, len(records), err)
	}
}

// collect waits for n results and settles those that were published.
func (b *bench) collect(n int) []*sink.Record {
	b.t.Helper()
	var all, published []*sink.Record
	for len(all) < n {
		some, err := b.next()
		if err != nil {
			b.t.Fatalf("results: got %d of %d: %v; status %+v", len(all), n, err, b.Status())
		}
		published = published[:0]
		for _, r := range some {
			if r.Result == sink.Published {
				published = append(published, r)
			}
		}
		b.Settled(published)
		all = append(all, some...)
	}
	if len(all) > n {
		b.t.Fatalf("results: got %d, want %d", len(all), n)
	}
	return all
}

// want checks results, given as a string of P, R and H.
func (b *bench) want(got []*sink.Record, want string) {
	b.t.Helper()
	letters := map[sink.Result]byte{sink.None: '-', sink.Published: 'P', sink.Rejected: 'R', sink.Held: 'H'}
	var s []byte
	for _, r := range got {
		s = append(s, letters[r.Result])
	}
	if string(s) != want {
		b.t.Fatalf("results: got %s, want %s", s, want)
	}
}

func record(topic, key, value string) *sink.Record {
	r := &sink.Record{Topic: topic, Key: []byte(key), Value: []byte(value), Cost: len(key) + len(value) + 100,
		Timestamp: 1_700_000_000_000}
	r.Headers.Add(sourceHeader, []byte("system/1/77"))
	return r
}

// sourceHeader distinguishes a relay's records from those of other writers.
const sourceHeader = "x-outbox-source"

// numbered makes n records over the keys in turn; values grow in submit order.
func numbered(topic string, n, keys int) []*sink.Record {
	records := make([]*sink.Record, n)
	for i := range records {
		records[i] = record(topic, fmt.Sprintf("key-%d", i%keys), fmt.Sprintf("%09d", i))
	}
	return records
}

// wantInTopic checks that the topic holds each record once, at its place, keys in order; duplicates are allowed when
// the driver cannot know.
func wantInTopic(t *testing.T, f Fixture, topic string, records []*sink.Record) {
	t.Helper()
	type place struct {
		partition int32
		offset    int64
	}
	messages := f.Read(t, topic)
	at := make(map[place]Message)
	last := make(map[string][]byte)
	seen := make(map[string]int)
	for _, m := range messages {
		at[place{m.Partition, m.Offset}] = m
		seen[string(m.Value)]++
		if seen[string(m.Value)] == 1 {
			if bytes.Compare(m.Value, last[string(m.Key)]) <= 0 {
				t.Errorf("order of %q: got %q after %q", m.Key, m.Value, last[string(m.Key)])
			}
			last[string(m.Key)] = m.Value
		}
	}
	for _, r := range records {
		if n := seen[string(r.Value)]; n == 0 || n > 1 && f.Deduplicates {
			t.Errorf("record %q: got %d times in the topic, want once", r.Value, n)
		}
		m, found := at[place{r.Partition, r.Offset}]
		if r.Offset >= 0 && (!found || !bytes.Equal(m.Value, r.Value) || !bytes.Equal(m.Key, r.Key)) {
			t.Errorf("record %q: its result says partition %d offset %d, where %q is", r.Value, r.Partition, r.Offset, m.Value)
		}
	}
	if len(seen) != len(records) {
		t.Errorf("topic: got %d different records, want %d", len(seen), len(records))
	}
}

// Catches: an engine that loses, doubles or reorders; a driver that gives wrong offsets.
func everyRecordOnceInOrder(t *testing.T, f Fixture) {
	const n = 10_000
	topic := f.Topic(t, 5)
	b := newBench(t, f, sink.Config{})
	records := numbered(topic, n, 97)
	for some := range slices.Chunk(records, 331) {
		b.submit(some...)
	}
	seen := make(map[*sink.Record]bool)
	lastOfKey := make(map[string][]byte)
	for _, r := range b.collect(n) {
		if r.Result != sink.Published || seen[r] {
			t.Fatalf("record %q: got result %d, came before: %v; want published once", r.Value, r.Result, seen[r])
		}
		seen[r] = true
		if bytes.Compare(r.Value, lastOfKey[string(r.Key)]) <= 0 {
			t.Fatalf("results of %q: got %q after %q", r.Key, r.Value, lastOfKey[string(r.Key)])
		}
		lastOfKey[string(r.Key)] = r.Value
	}
	wantInTopic(t, f, topic, records)
	if s := b.Status(); s.Events != 0 || s.Bytes != 0 || s.Unrecorded != 0 || s.Pending != 0 || s.State != sink.OK {
		t.Errorf("status when all is settled: got %+v, want nothing left and ok", s)
	}
}

// Catches: a driver that confuses null and empty, or loses headers or the timestamp.
func bytesArriveAsTheyAre(t *testing.T, f Fixture) {
	topic := f.Topic(t, 1)
	b := newBench(t, f, sink.Config{})
	headers := outbox.HeadersIn(nil)
	headers.Add("id", []byte("17"))
	headers.Add("null", nil)
	headers.Add("empty", []byte{})
	records := []*sink.Record{
		record(topic, "plain", "value"),
		{Topic: topic, Key: []byte("tombstone"), Value: nil, Cost: 100, Timestamp: 1_700_000_000_001},
		{Topic: topic, Key: []byte("empty value"), Value: []byte{}, Cost: 100, Timestamp: 1_700_000_000_002},
		{Topic: topic, Key: nil, Value: []byte("keyless"), Headers: headers, Cost: 100, Timestamp: 1_700_000_000_003},
		{Topic: topic, Key: []byte{0, 0xff, '\n'}, Value: bytes.Repeat([]byte{0xfe}, 10_000), Headers: headers, Cost: 11_000,
			Timestamp: 1_700_000_000_004},
	}
	b.submit(records...)
	b.want(b.collect(len(records)), "PPPPP")
	messages := f.Read(t, topic)
	if len(messages) != len(records) {
		t.Fatalf("topic: got %d messages, want %d", len(messages), len(records))
	}
	if f.Lacks.TopicOrder {
		slices.SortFunc(messages, func(a, b Message) int { return bytes.Compare(a.Key, b.Key) })
		slices.SortFunc(records, func(a, b *sink.Record) int { return bytes.Compare(a.Key, b.Key) })
	}
	for i, m := range messages {
		r := records[i]
		if !same(m.Key, r.Key) || !same(m.Value, r.Value) || m.Timestamp != r.Timestamp && !f.Lacks.Timestamps {
			t.Errorf("message %d: got key %q value %.20q timestamp %d, want %q %.20q %d", i, m.Key, m.Value, m.Timestamp, r.Key,
				r.Value, r.Timestamp)
		}
		if got, want := f.Lacks.headers(m.Headers), f.Lacks.headers(r.Headers); !slices.Equal(got, want) {
			t.Errorf("message %d: got headers %q, want %q", i, got, want)
		}
	}
	if d, can := f.Driver.(sink.Browser); can {
		browsed(t, d, records)
	}
}

// headers lists the headers as far as the broker can carry them.
func (l Lacks) headers(h outbox.Headers) (list []string) {
	for name, value := range h.All() {
		text := fmt.Sprintf("%s=%q", name, value)
		if value == nil && !l.NullHeaders {
			text = name + " is null"
		}
		list = append(list, text)
	}
	if l.HeaderOrder {
		slices.Sort(list)
	}
	return list
}

// same tells null from empty.
func same(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

// Catches: Submit that ignores the window or takes something else than a prefix; Settled that frees nothing.
func windowBlocks(t *testing.T, f Fixture) {
	topic := f.Topic(t, 2)
	b := newBench(t, f, sink.Config{MaxEvents: 10, MaxUnrecorded: 4})
	records := numbered(topic, 25, 3)
	ended, cancel := context.WithCancel(b.context)
	cancel()
	taken, err := b.Submit(ended, records)
	if taken != 10 || !errors.Is(err, context.Canceled) {
		t.Fatalf("submit of 25 into a window of 10: got %d taken, %v; want 10, context canceled", taken, err)
	}
	rest := make(chan error, 1)
	go func() {
		n, err := b.Submit(b.context, records[10:])
		if err == nil && n != 15 {
			err = fmt.Errorf("got %d taken, want 15", n)
		}
		rest <- err
	}()
	got := b.collect(25)
	if err := <-rest; err != nil {
		t.Errorf("submit of the rest: %v", err)
	}
	for _, r := range got {
		if r.Result != sink.Published {
			t.Errorf("record %q: got result %d, want published", r.Value, r.Result)
		}
	}
	wantInTopic(t, f, topic, records)
}

// Catches: a Close that hangs, or that leaves Submit, Results or Retry waiting or working.
func closeEnds(t *testing.T, f Fixture) {
	topic := f.Topic(t, 2)
	b := newBench(t, f, sink.Config{})
	b.submit(numbered(topic, 1000, 10)...)
	if err := b.close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	if taken, err := b.Submit(b.context, numbered(topic, 1, 1)); taken != 0 || !errors.Is(err, sink.ErrClosed) {
		t.Errorf("submit after close: got %d, %v; want 0, %v", taken, err, sink.ErrClosed)
	}
	if err := b.Retry(sink.Lane{Topic: topic, Key: []byte("key-1")}, 1, nil); !errors.Is(err, sink.ErrClosed) {
		t.Errorf("retry after close: got %v, want %v", err, sink.ErrClosed)
	}
	var published []*sink.Record
	for {
		some, err := b.next()
		if errors.Is(err, sink.ErrClosed) {
			break
		}
		if err != nil {
			t.Fatalf("results after close: got %v, want %v", err, sink.ErrClosed)
		}
		published = append(published, some...)
	}
	if in := f.Read(t, topic); len(in) != len(published) {
		t.Errorf("after close: got %d published results, but %d messages in the topic", len(published), len(in))
	}
}
