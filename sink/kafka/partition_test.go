package kafka

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/codes"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/recordset"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// observed collects what the hooks were told.
type observed struct {
	mu     sync.Mutex
	resets []Reset
	alarms []sink.Alarm
	odds   []Odd
	moves  []move
	errors []error
}

func (o *observed) hooks() Hooks {
	lock := func(f func()) { o.mu.Lock(); f(); o.mu.Unlock() }
	return Hooks{
		ProducerReset: func(r Reset) { lock(func() { o.resets = append(o.resets, r) }) },
		Alarm:         func(a sink.Alarm) { lock(func() { o.alarms = append(o.alarms, a) }) },
		Odd:           func(odd Odd) { lock(func() { o.odds = append(o.odds, odd) }) },
		LeaderMoved: func(topic string, partition, from, to int32) {
			lock(func() { o.moves = append(o.moves, move{topicPartition{topic, partition}, from, to}) })
		},
		MetadataFailed: func(err error) { lock(func() { o.errors = append(o.errors, err) }) },
	}
}

// wantAlarm checks that there was one alarm of the kind, in topic t, that the hook and the driver tell the same, and
// that it says the words.
func (o *observed) wantAlarm(t *testing.T, d *Driver, kind string, partition int32, words ...string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Equal(o.alarms, d.Alarms()) {
		t.Fatalf("alarms: got %+v by the hook and %+v by the driver, want the same", o.alarms, d.Alarms())
	}
	at := slices.IndexFunc(o.alarms, func(a sink.Alarm) bool { return a.Kind == kind })
	if at < 0 {
		t.Fatalf("alarms: got %+v, want one of %s", o.alarms, kind)
	}
	a := o.alarms[at]
	if a.Topic != "t" || a.Partition != partition || a.Count != 1 || a.At.IsZero() {
		t.Errorf("alarm: got %+v, want the first %s of t/%d", a, kind, partition)
	}
	for _, w := range words {
		if !strings.Contains(a.Text, w) {
			t.Errorf("alarm: got %q, want it to mention %q", a.Text, w)
		}
	}
}

// sequenceBench is a driver under hooks and spied upon, which has written two records to t/0.
func sequenceBench(t *testing.T) (*kfake.Cluster, *Driver, *spy, *observed) {
	t.Helper()
	c := newFake(t)
	s := newSpy(c)
	o := new(observed)
	d := newDriver(t, c.ListenAddrs(), func(c *Config) { c.Hooks = o.hooks() })
	wantAccepted(t, send(t, d, newBatch(d, "t", 0, "a", "b")), 0)
	return c, d, s, o
}

func fault(c *kfake.Cluster, err *kerr.Error) {
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: err})
}

// wantStamps checks producer changes and sequences of what brokers got for t/0: a letter for the producer, a digit for
// the sequence.
func (s *spy) wantStamps(t *testing.T, want string) {
	t.Helper()
	names := make(map[int64]byte)
	var got []byte
	for _, b := range s.produced() {
		if b.topic != "t" || b.partition != 0 {
			continue
		}
		if names[b.stamp.Producer] == 0 {
			names[b.stamp.Producer] = byte('A' + len(names))
		}
		got = append(got, names[b.stamp.Producer], byte('0'+b.stamp.Sequence), ' ')
	}
	if string(got) != want+" " {
		t.Errorf("producers and sequences: got %q, want %q", got, want)
	}
}

// Breaks when a sequence moves on without an acknowledgement, or a re-cut batch begins elsewhere than the refused one.
// Seen to fail with the sequence moved by one for each batch.
func TestSequenceMovesOnlyWithAcknowledgements(t *testing.T) {
	c, d, s, o := sequenceBench(t)
	fault(c, kerr.NotEnoughReplicas)
	b := newBatch(d, "t", 0, "c", "d")
	wantVerdict(t, send(t, d, b), sink.NotWritten)
	wantAccepted(t, send(t, d, b), 2)
	fault(c, kerr.InvalidRecord)
	wantVerdict(t, send(t, d, newBatch(d, "t", 0, "e", "bad", "f")), sink.Refused)
	wantAccepted(t, send(t, d, newBatch(d, "t", 0, "e")), 4)
	wantAccepted(t, send(t, d, newBatch(d, "t", 0, "f")), 5)
	s.wantStamps(t, "A0 A2 A2 A4 A4 A5")
	if len(o.resets) != 0 {
		t.Errorf("resets: got %+v, want none", o.resets)
	}
	wantLog(t, c.ListenAddrs(), "t", 0, "a", "b", "c", "d", "e", "f")
}

// Breaks when a batch that was not written and was dropped by the engine leaves a gap in the sequence, or when it comes
// back after another batch under a stale sequence, which a broker would take for a duplicate of that one. Seen to fail
// with the old stamp kept.
func TestDroppedBatchLeavesNoGapAndComesBackFresh(t *testing.T) {
	c, d, s, _ := sequenceBench(t)
	fault(c, kerr.NotEnoughReplicas)
	dropped := newBatch(d, "t", 0, "c", "d")
	wantVerdict(t, send(t, d, dropped), sink.NotWritten)
	wantAccepted(t, send(t, d, newBatch(d, "t", 0, "e", "f")), 2)
	wantAccepted(t, send(t, d, dropped), 4)
	s.wantStamps(t, "A0 A2 A2 A4")
	wantLog(t, c.ListenAddrs(), "t", 0, "a", "b", "e", "f", "c", "d")
}

// Breaks when a range that may have been written is used for other records: the broker would say "written" and drop
// them (K2). Seen to fail with the range used again.
func TestUncertainRangeIsNeverReused(t *testing.T) {
	c, d, s, o := sequenceBench(t)
	fault(c, kerr.RequestTimedOut) // appended
	lost := newBatch(d, "t", 0, "c", "d")
	wantVerdict(t, send(t, d, lost), sink.Unknown)
	wantAccepted(t, send(t, d, newBatch(d, "t", 0, "e", "f")), 4)
	s.wantStamps(t, "A0 A2 B0")
	wantLog(t, c.ListenAddrs(), "t", 0, "a", "b", "c", "d", "e", "f")
	if len(o.resets) != 1 || o.resets[0] != (Reset{"t", 0, "NOT_RESENT", 2}) {
		t.Errorf("resets: got %+v, want one with 2 uncertain records", o.resets)
	}
}

// Breaks when a batch that may have been written and was refused later is cut again under the same range.
func TestRefusedAfterUncertainTakesANewProducer(t *testing.T) {
	c, d, s, o := sequenceBench(t)
	fault(c, kerr.RequestTimedOut) // appended
	b := newBatch(d, "t", 0, "c", "d")
	wantVerdict(t, send(t, d, b), sink.Unknown)
	fault(c, kerr.InvalidRecord)
	wantVerdict(t, send(t, d, b), sink.Refused)
	wantAccepted(t, send(t, d, newBatch(d, "t", 0, "c")), 4)
	wantAccepted(t, send(t, d, newBatch(d, "t", 0, "d")), 5)
	s.wantStamps(t, "A0 A2 A2 B0 B1")
	if got := d.Stats(); got.PossibleDuplicates != 2 || got.ProducerResets != 1 {
		t.Errorf("stats: got %+v, want 2 possible duplicates and 1 reset", got)
	}
	if len(o.resets) != 1 || o.resets[0] != (Reset{"t", 0, "INVALID_RECORD", 2}) {
		t.Errorf("resets: got %+v", o.resets)
	}
}

// Breaks when lost acknowledged data raises no alarm, raises one for another code, or is not told where.
func TestSequenceLostWithNothingOutstandingIsAnAlarm(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.OutOfOrderSequenceNumber, kerr.InvalidProducerEpoch,
		kerr.InvalidProducerIDMapping, kerr.UnknownProducerID, kerr.ProducerFenced} {
		t.Run(code.Message, func(t *testing.T) {
			c, d, s, o := sequenceBench(t)
			fault(c, code)
			b := newBatch(d, "t", 0, "c")
			wantVerdict(t, send(t, d, b), sink.NotWritten)
			wantAccepted(t, send(t, d, b), 2)
			wantAccepted(t, send(t, d, newBatch(d, "t", 0, "d")), 3)
			s.wantStamps(t, "A0 A2 B0 B1")
			if len(o.resets) != 1 || o.resets[0] != (Reset{"t", 0, code.Message, 0}) {
				t.Errorf("resets: got %+v, want one without uncertain records", o.resets)
			}
			if code == kerr.OutOfOrderSequenceNumber {
				o.wantAlarm(t, d, sink.AlarmLostData, 0, "last acknowledged offset is 1", "cdc-relay verify")
			}
			if want := map[bool]int{true: 1}[code == kerr.OutOfOrderSequenceNumber]; len(o.alarms) != want {
				t.Errorf("alarms: got %+v, want %d", o.alarms, want)
			}
			if got := d.Stats(); got.PossibleDuplicates != 0 {
				t.Errorf("stats: got %+v, want no possible duplicates", got)
			}
		})
	}
}

// Breaks when a sequence that is lost while a batch is uncertain counts as lost data, or its records not as possible
// duplicates. Seen to fail with none counted.
func TestSequenceLostWithUncertainBatchCountsPossibleDuplicates(t *testing.T) {
	c, d, s, o := sequenceBench(t)
	dropNext(c, 1)
	b := newBatch(d, "t", 0, "c", "d", "e")
	wantVerdict(t, send(t, d, b), sink.Unknown)
	fault(c, kerr.OutOfOrderSequenceNumber)
	wantVerdict(t, send(t, d, b), sink.Unknown)
	wantAccepted(t, send(t, d, b), 2)
	s.wantStamps(t, "A0 A2 B0")
	if got := d.Stats(); got.PossibleDuplicates != 3 || len(o.alarms) != 0 {
		t.Errorf("stats: got %+v with %d alarms, want 3 possible duplicates and no alarm", got, len(o.alarms))
	}
}

// Breaks when a reset of one partition disturbs the others' sequences.
func TestResetIsOfOnePartition(t *testing.T) {
	c, d, s, _ := sequenceBench(t)
	wantAccepted(t, send(t, d, newBatch(d, "t", 1, "x")), 0)
	fault(c, kerr.InvalidProducerEpoch)
	b := newBatch(d, "t", 0, "c")
	send(t, d, b)
	wantAccepted(t, send(t, d, b), 2)
	wantAccepted(t, send(t, d, newBatch(d, "t", 1, "y")), 1)
	for _, b := range s.produced() {
		if b.partition == 1 && b.stamp.Producer != s.produced()[0].stamp.Producer {
			t.Errorf("producer of t/1: got %d, want %d still", b.stamp.Producer, s.produced()[0].stamp.Producer)
		}
	}
	if got := s.count(kmsg.InitProducerID); got != 2 {
		t.Errorf("producer ids asked for: got %d, want 2", got)
	}
}

// Breaks when brokers that still load make anything but a short wait, or when the request needs a coordinator (a broker
// would create its transaction topic).
func TestLoadingBrokersAreAskedAgainForAProducer(t *testing.T) {
	c := newFake(t)
	s := newSpy(c)
	d := newDriver(t, c.ListenAddrs(), nil)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TopLevel: true, Err: kerr.CoordinatorLoadInProgress,
		Count: 3})
	wantAccepted(t, send(t, d, newBatch(d, "t", 0, "a")), 0)
	if got := s.count(kmsg.InitProducerID); got != 4 {
		t.Errorf("requests for a producer id: got %d, want 4", got)
	}
	if got := s.count(kmsg.FindCoordinator); got != 0 {
		t.Errorf("requests for a coordinator: got %d, want 0", got)
	}
}

// Breaks when the first batch has to wait for what could be had before it. Seen to fail with nothing asked ahead.
func TestProducerIsThereBeforeTheFirstBatch(t *testing.T) {
	c := newFake(t)
	s := newSpy(c)
	d := newDriver(t, c.ListenAddrs(), func(c *Config) { c.lazy = false })
	harness.Eventually(t, patience, "a producer id is asked for", func(context.Context) string {
		if s.count(kmsg.InitProducerID) == 0 {
			return "not yet"
		}
		return ""
	})
	wantAccepted(t, send(t, d, newBatch(d, "t", 0, "a")), 0)
	if got := s.count(kmsg.InitProducerID); got != 1 {
		t.Errorf("requests for a producer id: got %d, want 1", got)
	}
}

// Breaks when a principal without the right to produce is a cluster's trouble, or is found out once per partition.
func TestForbiddenProducerIsConfigurationTrouble(t *testing.T) {
	c := newFake(t, kfake.NumBrokers(1))
	s := newSpy(c)
	d := newDriver(t, c.ListenAddrs(), nil)
	h := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TopLevel: true, Err: kerr.ClusterAuthorizationFailed,
		Count: -1})
	batches := []*sink.Batch{newBatch(d, "t", 0, "a"), newBatch(d, "t", 1, "b"), newBatch(d, "t", 2, "c")}
	send(t, d, batches...)
	for _, b := range batches {
		var e *BrokerError
		if b.Outcome.Verdict != sink.NotWritten || b.Outcome.Trouble != sink.ConfigurationTrouble ||
			!errors.As(b.Outcome.Err, &e) || e.Name != "CLUSTER_AUTHORIZATION_FAILED" {
			t.Errorf("outcome: got %+v, want configuration trouble", b.Outcome)
		}
	}
	if got := s.count(kmsg.InitProducerID); got != 1 {
		t.Errorf("requests for a producer id: got %d, want 1", got)
	}
	if err := d.CheckProducer(testContext(t)); !codes.Is(err, 31) {
		t.Errorf("check: got %v, want code 31", err)
	}
	h.Remove()
	wantAccepted(t, send(t, d, batches...), 0)
}

// Breaks when a buffer that a connection may still be reading is used for the next batch (K4). Seen to fail with a lent
// buffer kept by discard.
func TestLentBufferIsNeverUsedAgain(t *testing.T) {
	lent := &attempt{bytes: make([]byte, 10), lent: true}
	lent.discard()
	if cap(lent.bytes) != 0 || lent.lent {
		t.Errorf("discarded: got %+v, want no buffer", lent)
	}
	take := func() []byte { // a size of no other buffer
		return recordset.Encode(nil, []*sink.Record{{}}, 3<<20, recordset.Stamp{}, None)
	}
	again := func(lent bool) bool {
		a := &attempt{bytes: take(), lent: lent, uncertain: true, records: 3}
		bytes := &a.bytes[0]
		a.recycle()
		if a.bytes != nil || a.uncertain || a.records != 0 {
			t.Errorf("recycled: got %+v, want an empty attempt", a)
		}
		return &take()[0] == bytes
	}
	if again(true) {
		t.Error("recycled: a lent buffer is used again")
	}
	if !again(false) {
		t.Error("recycled: a buffer that nobody has is not used again")
	}
}
