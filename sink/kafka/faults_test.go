package kafka

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/sink"
)

// Breaks when a batch that was appended although the answer was an error is sent again with another sequence.
func TestAppendedThenErrorIsStoredOnce(t *testing.T) {
	for _, e := range []*kerr.Error{kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend} {
		t.Run(e.Message, func(t *testing.T) {
			c := newFake(t)
			s := newSpy(c)
			d := newDriver(t, c.ListenAddrs(), nil)
			wantAccepted(t, send(t, d, newBatch(d, "t", 0, "a")), 0)
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: e, Count: 2})
			b := newBatch(d, "t", 0, "b", "c")
			wantVerdict(t, send(t, d, b), sink.Unknown)
			wantVerdict(t, send(t, d, b), sink.Unknown)
			wantAccepted(t, send(t, d, b), 1)
			s.wantResentUnchanged(t)
			wantAccepted(t, send(t, d, newBatch(d, "t", 0, "d")), 3)
			wantLog(t, c.ListenAddrs(), "t", 0, "a", "b", "c", "d")
			if got := d.Stats(); got.PossibleDuplicates != 0 || got.ProducerResets != 0 {
				t.Errorf("stats: got %+v, want no possible duplicates and no resets", got)
			}
		})
	}
}

// dropAfter makes kfake break the connection of the next n Produce requests.
func dropNext(c *kfake.Cluster, n int32) {
	var left atomic.Int32
	left.Store(n)
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if left.Add(-1) < 0 {
			return nil, nil, false
		}
		return nil, errors.New("dropped by the test"), true
	})
}

// Breaks when a connection that ends before the answer is taken for a failure, or when the next attempt has to wait.
func TestDroppedConnectionIsUnknownAndMayBeTriedAtOnce(t *testing.T) {
	c := newFake(t)
	d := newDriver(t, c.ListenAddrs(), nil)
	wantAccepted(t, send(t, d, newBatch(d, "t", 0, "a")), 0)
	dropNext(c, 3)
	b := newBatch(d, "t", 0, "b")
	for range 3 {
		o := send(t, d, b)
		wantVerdict(t, o, sink.Unknown)
		if o.Pause || o.Trouble != sink.ClusterTrouble || o.Err == nil {
			t.Errorf("outcome: got %+v, want cluster trouble with its cause, and no pause", o)
		}
	}
	wantAccepted(t, send(t, d, b), 1)
	wantLog(t, c.ListenAddrs(), "t", 0, "a", "b")
}

// Breaks when a silent broker is waited for without bound, or when the batch is not the same afterwards.
func TestSilentBrokerIsUnknownAfterTheTimeout(t *testing.T) {
	c := newFake(t)
	d := newDriver(t, c.ListenAddrs(), func(c *Config) { c.RequestTimeout = 200 * time.Millisecond })
	wantAccepted(t, send(t, d, newBatch(d, "t", 0, "a")), 0)
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) { return nil, nil, true })
	b := newBatch(d, "t", 0, "b")
	began := time.Now()
	o := send(t, d, b)
	wantVerdict(t, o, sink.Unknown)
	if took := time.Since(began); took < 300*time.Millisecond || took > 5*time.Second {
		t.Errorf("gave up after %v, want 300ms", took)
	}
	if !b.State.(*attempt).lent {
		t.Error("the connection may still read the bytes, and they are not lent")
	}
	if !strings.Contains(o.Err.Error(), "no answer in 300ms") {
		t.Errorf("cause: got %q, want it to say how long was waited", o.Err)
	}
	wantAccepted(t, send(t, d, b), 1)
}

// Breaks when the engine's end leaves a batch NotWritten that may have left, keeps Produce from returning, or does not
// keep it from sending: then chance decides. Seen to fail now and then, on a busy machine, without the look at the
// context.
func TestEndedContextIsUnknown(t *testing.T) {
	c := newFake(t)
	d := newDriver(t, c.ListenAddrs(), nil)
	wantAccepted(t, send(t, d, newBatch(d, "t", 0, "a")), 0)
	ctx, cancel := context.WithCancel(testContext(t))
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) { cancel(); return nil, nil, true })
	b := newBatch(d, "t", 0, "b")
	d.Produce(ctx, d.Node("t", 0), []*sink.Batch{b})
	wantVerdict(t, b.Outcome, sink.Unknown)
	d.Produce(ctx, d.Node("t", 0), []*sink.Batch{b})
	wantVerdict(t, b.Outcome, sink.Unknown)
	fresh := newBatch(d, "t", 1, "c")
	d.Produce(ctx, d.Node("t", 1), []*sink.Batch{fresh})
	wantVerdict(t, fresh.Outcome, sink.NotWritten)
}

// Breaks when a broker that cannot be reached is said to have got something, or is tried again without a pause. Seen
// to fail with Unknown instead of NotWritten, and without the pause.
func TestUnreachableBrokerIsNotWritten(t *testing.T) {
	c := newFake(t)
	var away atomic.Bool
	d := newDriver(t, c.ListenAddrs(), func(c *Config) {
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if away.Load() {
				return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		}
	})
	awaitTopic(t, d, "t")
	if err := d.CheckProducer(testContext(t)); err != nil {
		t.Fatal(err) // so that the Produce request is the first to need a connection
	}
	away.Store(true)
	d.endpoint(d.view.Load().nodes[d.Node("t", 0)]).Close()
	b := newBatch(d, "t", 0, "a")
	o := send(t, d, b)
	wantVerdict(t, o, sink.NotWritten)
	if a := b.State.(*attempt); a.lent || a.uncertain {
		t.Errorf("attempt: got %+v, want it neither lent nor uncertain, as no connection read it", a)
	}
	if !o.Pause || o.Trouble != sink.ClusterTrouble || !errors.Is(o.Err, syscall.ECONNREFUSED) {
		t.Errorf("outcome: got %+v, want cluster trouble with its cause, and a pause", o)
	}
	away.Store(false)
	wantAccepted(t, send(t, d, b), 0)
}

// Breaks when a broker that the cluster does not name makes anything else than a pause.
func TestUnknownNodeIsNotWritten(t *testing.T) {
	c := newFake(t)
	d := newDriver(t, c.ListenAddrs(), nil)
	awaitTopic(t, d, "t")
	b := newBatch(d, "t", 0, "a")
	d.Produce(testContext(t), 77, []*sink.Batch{b})
	wantVerdict(t, b.Outcome, sink.NotWritten)
	if !b.Outcome.Pause {
		t.Error("pause: got false, want true")
	}
	wantAccepted(t, send(t, d, b), 0)
}

// Breaks when one partition's refusal or trouble spreads to the others of the request.
func TestOutcomesOfOneRequestAreSeparate(t *testing.T) {
	c := newFake(t, kfake.NumBrokers(1))
	d := newDriver(t, c.ListenAddrs(), nil)
	awaitTopic(t, d, "t")
	awaitTopic(t, d, "u")
	c.Fault(
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Partitions: []int32{1}, Err: kerr.NotEnoughReplicas},
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "u", Partitions: []int32{0}, Err: kerr.PolicyViolation},
	)
	batches := []*sink.Batch{
		newBatch(d, "t", 0, "a"), newBatch(d, "u", 1, "b"), newBatch(d, "t", 1, "c"), newBatch(d, "u", 0, "d"),
		newBatch(d, "t", 2, "e"),
	}
	send(t, d, batches...)
	for i, want := range []sink.Verdict{sink.Accepted, sink.Accepted, sink.NotWritten, sink.Refused, sink.Accepted} {
		if got := batches[i].Outcome; got.Verdict != want {
			t.Errorf("batch %d: got %+v, want verdict %d", i, got, want)
		}
	}
	if got := d.Stats().Requests; got != 1 {
		t.Errorf("requests: got %d, want 1", got)
	}
}

// Breaks when an answer that leaves a partition out counts for it.
func TestPartitionWithoutAnswerIsUnknown(t *testing.T) {
	c := newFake(t, kfake.NumBrokers(1))
	d := newDriver(t, c.ListenAddrs(), nil)
	wantAccepted(t, send(t, d, newBatch(d, "t", 0, "a")), 0)
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		answer := r.ResponseKind().(*kmsg.ProduceResponse)
		answer.SetVersion(r.GetVersion())
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic = "t"
		partition := kmsg.NewProduceResponseTopicPartition()
		partition.Partition, partition.BaseOffset = 1, 5
		topic.Partitions = append(topic.Partitions, partition)
		answer.Topics = append(answer.Topics, topic)
		return answer, nil, true
	})
	left, answered := newBatch(d, "t", 0, "b"), newBatch(d, "t", 1, "c")
	send(t, d, left, answered)
	wantVerdict(t, left.Outcome, sink.Unknown)
	wantAccepted(t, answered.Outcome, 5)
	wantAccepted(t, send(t, d, left), 1)
}

// Breaks when record_errors (KIP-467) are not handed on: the engine would bisect, and people would not see the text.
func TestNamedRecordsAreGuilty(t *testing.T) {
	c := newFake(t, kfake.NumBrokers(1))
	d := newDriver(t, c.ListenAddrs(), nil)
	text := "Compacted topic cannot accept message without key"
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		answer := r.ResponseKind().(*kmsg.ProduceResponse)
		answer.SetVersion(r.GetVersion())
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic = "t"
		partition := kmsg.NewProduceResponseTopicPartition()
		partition.ErrorCode, partition.BaseOffset = 87, -1
		partition.ErrorMessage = kmsg.StringPtr("One or more records have been rejected")
		partition.ErrorRecords = []kmsg.ProduceResponseTopicPartitionErrorRecord{{RelativeOffset: 1, ErrorMessage: &text},
			{RelativeOffset: 3}, {RelativeOffset: 4}}
		topic.Partitions = append(topic.Partitions, partition)
		answer.Topics = append(answer.Topics, topic)
		return answer, nil, true
	})
	b := newBatch(d, "t", 0, "a", "b", "c", "d")
	o := send(t, d, b)
	wantVerdict(t, o, sink.Refused)
	if len(o.Guilty) != 2 || o.Guilty[0] != 1 || o.Guilty[1] != 3 || len(o.Reasons) != 2 {
		t.Fatalf("guilty: got %v with %d reasons, want records 1 and 3 (4 does not exist)", o.Guilty, len(o.Reasons))
	}
	if o.Reasons[0].Text != text || o.Reasons[0].Code != "INVALID_RECORD" ||
		o.Reasons[1].Text != *kmsg.StringPtr("One or more records have been rejected") {
		t.Errorf("reasons: got %v and %v, want the record's text and the batch's", o.Reasons[0], o.Reasons[1])
	}
	b = newBatch(d, "t", 0, "a", "c")
	wantAccepted(t, send(t, d, b), 0)
}

// Breaks when the engine is not told that a broker asked us to wait, or when that counts as trouble. Seen to fail with
// microseconds for milliseconds.
func TestThrottleTimeIsTold(t *testing.T) {
	c := newFake(t, kfake.NumBrokers(1))
	d := newDriver(t, c.ListenAddrs(), nil)
	const throttle = 150 * time.Millisecond
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		answer := r.ResponseKind().(*kmsg.ProduceResponse)
		answer.SetVersion(r.GetVersion())
		answer.ThrottleMillis = int32(throttle / time.Millisecond)
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic = "t"
		topic.Partitions = append(topic.Partitions, kmsg.NewProduceResponseTopicPartition())
		answer.Topics = append(answer.Topics, topic)
		return answer, nil, true
	})
	o := send(t, d, newBatch(d, "t", 0, "a"))
	wantAccepted(t, o, 0)
	if o.Throttle != throttle || o.Trouble != sink.NoTrouble {
		t.Errorf("outcome: got %+v, want a throttle of %v and no trouble", o, throttle)
	}
}

// Breaks when a request leaves long after it was composed: the process may have been frozen, and another one may have
// taken its place since. Here it waits for a producer id.
func TestLateRequestIsNotSent(t *testing.T) {
	c := newFake(t, kfake.NumBrokers(1))
	s := newSpy(c)
	const dial = 100 * time.Millisecond
	d := newDriver(t, c.ListenAddrs(), func(c *Config) { c.DialTimeout = dial })
	awaitTopic(t, d, "t")
	c.ControlKey(int16(kmsg.InitProducerID), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.SleepControl(func() { _ = pause(testContext(t), dial+sendPatience+100*time.Millisecond) })
		return nil, nil, false
	})
	b := newBatch(d, "t", 0, "a")
	wantVerdict(t, send(t, d, b), sink.NotWritten)
	if got := s.count(kmsg.Produce); got != 0 {
		t.Errorf("requests that left too late: got %d, want none", got)
	}
	wantAccepted(t, send(t, d, b), 0)
}

// Breaks when a slow partition delays others of its broker that have a request of their own.
func TestSlowPartitionDoesNotBlockItsBroker(t *testing.T) {
	c := newFake(t, kfake.NumBrokers(1))
	d := newDriver(t, c.ListenAddrs(), nil)
	wantAccepted(t, send(t, d, newBatch(d, "u", 0, "a")), 0)
	slow, release, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var later atomic.Bool
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		if !later.Swap(true) {
			c.SleepControl(func() { close(slow); <-release })
		}
		return nil, nil, false
	})
	stuck := newBatch(d, "t", 0, "b")
	go func() {
		defer close(done)
		d.Produce(context.Background(), 0, []*sink.Batch{stuck})
	}()
	<-slow
	for i := range 10 {
		wantAccepted(t, send(t, d, newBatch(d, "u", 0, "c")), int64(i+1))
	}
	close(release)
	<-done
	wantAccepted(t, stuck.Outcome, 0)
}

// Breaks when two batches of a partition can be under way at once: a broker answers only one of them (K1). Seen to
// fail with the panic left out.
func TestTwoBatchesOfAPartitionPanic(t *testing.T) {
	c := newFake(t)
	d := newDriver(t, c.ListenAddrs(), nil)
	awaitTopic(t, d, "t")
	defer func() {
		if recover() == nil {
			t.Error("got no panic")
		}
	}()
	d.Produce(testContext(t), d.Node("t", 0), []*sink.Batch{newBatch(d, "t", 0, "a"), newBatch(d, "t", 0, "b")})
}
