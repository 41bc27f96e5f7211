package sinktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Message is a record as it is in a topic.
type Message struct {
	Topic      string
	Partition  int32
	Offset     int64
	Key, Value []byte
	Headers    outbox.Headers
	Timestamp  int64 // milliseconds since the Unix epoch
	Arrival    int   // from a Broker: the order in which it appended, from 1, over all topics
}

// Attempt is one batch of one request to a [Broker].
type Attempt struct {
	Node   int32
	Batch  *sink.Batch
	Number int // of this batch, from 1
}

// Plan is how a [Broker] answers an [Attempt]. The zero value accepts at once.
type Plan struct {
	// Outcome is the answer; its FirstOffset is filled in. An Unanswered verdict means Accepted. A front that it calls
	// Written is in the topic.
	Outcome sink.Outcome
	// Written, with Unknown: the batch is in the topic although the answer does not say so.
	Written bool
	// Delay and Until (closed by the test) keep the answer of the whole request back.
	Delay time.Duration
	Until <-chan struct{}
}

// Broker is a broker in memory and its [sink.Driver]: tests choose its answers, and it checks that the engine keeps
// the rules of the driver's interface; see [Broker.Violations].
type Broker struct {
	// Answer chooses the answer to an attempt; nil accepts all. Set before the first record. Called under the
	// broker's lock, one call at a time; it must not call the broker.
	Answer func(Attempt) Plan
	// Forgetful makes the broker append a batch once more when it comes again after it was written.
	Forgetful bool
	// BatchLimit and RecordLimit are returned by Limits; 0 = none.
	BatchLimit, RecordLimit int

	mu         sync.Mutex // guards what follows
	topics     map[string]*brokerTopic
	changed    chan struct{}
	violations []string
	keyless    int
	arrivals   int
	closed     bool
}

type brokerTopic struct {
	partitions []*brokerPartition // those that are gone come last
	number     int                // of those that are not
}

type brokerPartition struct {
	leader int32
	log    []Message
	open   *batchHistory // of the batch that must come again
	out    bool          // a request with a batch of the partition is out
}

// batchHistory is kept in Batch.State by the broker.
type batchHistory struct {
	batch   *sink.Batch
	records []*sink.Record
	number  int
	written bool // all of records
	offset  int64
	front   int // so many of records are done by the present answer
}

// ErrGone is the error of an answer that the topic is gone.
var ErrGone error = goneError{}

type goneError struct{}

func (goneError) Error() string { return "the topic is gone" }
func (goneError) Gone() bool    { return true }

// NewBroker makes a broker without topics.
func NewBroker() *Broker {
	return &Broker{topics: make(map[string]*brokerTopic), changed: make(chan struct{})}
}

// SetTopic makes the topic, or gives it more partitions; new partitions are led by node 0. With fewer the topic is
// another one: those beyond are gone, and Log alone remembers what was in them.
func (b *Broker) SetTopic(name string, partitions int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[name]
	if t == nil {
		t = &brokerTopic{}
		b.topics[name] = t
	}
	for len(t.partitions) < partitions {
		t.partitions = append(t.partitions, &brokerPartition{})
	}
	t.number = partitions
	b.change()
}

// SetLeader moves the partition to a node; -1 leaves it without.
func (b *Broker) SetLeader(topic string, partition, node int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.topics[topic].partitions[partition].leader = node
	b.change()
}

func (b *Broker) change() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// Log returns the topic's records, per partition in order, lower partitions first.
func (b *Broker) Log(topic string) []Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	var log []Message
	if t := b.topics[topic]; t != nil {
		for _, p := range t.partitions {
			log = append(log, p.log...)
		}
	}
	return log
}

// Violations are the broken rules: a changed batch after an unknown outcome, two batches of a partition in a request or
// two requests of a partition at a time, an empty or too large batch, a call after Close.
func (b *Broker) Violations() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.violations)
}

func (b *Broker) violation(format string, arguments ...any) {
	b.violations = append(b.violations, fmt.Sprintf(format, arguments...))
}

// Partitions implements [sink.Driver].
func (b *Broker) Partitions(topic string) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[topic]
	if t == nil {
		return 0, errors.New("the broker has no such topic")
	}
	return t.number, nil
}

// Partition implements [sink.Driver]: by hash of the key, or one after the other.
func (b *Broker) Partition(r *sink.Record, partitions int) int32 {
	if r.Key == nil {
		b.keyless++ // one call at a time
		return int32(b.keyless % partitions)
	}
	h := fnv.New32a()
	h.Write(r.Key)
	return int32(h.Sum32() % uint32(partitions))
}

// Node implements [sink.Driver].
func (b *Broker) Node(topic string, partition int32) int32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.topics[topic]; t != nil && int(partition) < t.number {
		return t.partitions[partition].leader
	}
	return -1
}

// Changed implements [sink.Driver].
func (b *Broker) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// Limits implements [sink.Driver].
func (b *Broker) Limits(string) (batch, record int) { return b.BatchLimit, b.RecordLimit }

// Size implements [sink.Driver].
func (b *Broker) Size(r *sink.Record) int {
	return len(r.Key) + len(r.Value) + len(r.Headers.Block()) + 16
}

// Dropped implements [sink.Dropper].
func (b *Broker) Dropped(batch *sink.Batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[batch.Topic]
	p := t.partitions[batch.Partition]
	o := &batch.Outcome
	resolved := int(batch.Partition) >= t.number || o.Verdict == sink.NotWritten || errors.Is(o.Err, ErrGone)
	if !resolved || p.out || p.open == nil || batch.State != p.open {
		b.violation("%s/%d: a batch is dropped that must come again", batch.Topic, batch.Partition)
	}
	p.open = nil
}

// Close implements [sink.Driver].
func (b *Broker) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		b.violation("Close twice")
	}
	b.closed = true
	return nil
}

// Produce implements [sink.Driver].
func (b *Broker) Produce(ctx context.Context, node int32, batches []*sink.Batch) {
	delay, until := b.receive(node, batches)
	cut := false
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			cut = true
		}
	}
	for _, c := range until {
		select {
		case <-c:
		case <-ctx.Done():
			cut = true
		}
	}
	b.reply(batches, cut || ctx.Err() != nil)
}

// receive checks the request and decides the outcomes.
func (b *Broker) receive(node int32, batches []*sink.Batch) (delay time.Duration, until []<-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		b.violation("Produce after Close")
	}
	if len(batches) == 0 {
		b.violation("a request without a batch")
	}
	for _, batch := range batches {
		t := b.topics[batch.Topic]
		p := t.partitions[batch.Partition]
		history := b.check(p, batch)
		plan := Plan{}
		if int(batch.Partition) >= t.number {
			plan.Outcome = sink.Outcome{
				Verdict: sink.Unknown, Trouble: sink.TopicTrouble, Err: errors.New("the broker has no such partition"),
			}
		} else if p.leader != node {
			plan.Outcome = sink.Outcome{
				Verdict: sink.NotWritten, Trouble: sink.PartitionTrouble,
				Err: fmt.Errorf("node %d does not lead the partition, node %d does", node, p.leader),
			}
		} else if b.Answer != nil {
			plan = b.Answer(Attempt{Node: node, Batch: batch, Number: history.number})
		}
		batch.Outcome = b.apply(p, history, plan)
		delay = max(delay, plan.Delay)
		if plan.Until != nil {
			until = append(until, plan.Until)
		}
	}
	return delay, until
}

// check judges the batch against the rules and takes down its attempt.
func (b *Broker) check(p *brokerPartition, batch *sink.Batch) *batchHistory {
	name := fmt.Sprintf("%s/%d", batch.Topic, batch.Partition)
	if p.out {
		b.violation("%s: two batches at a time", name)
	}
	p.out = true
	bytes := 0
	for _, r := range batch.Records {
		bytes += b.Size(r)
	}
	switch {
	case len(batch.Records) == 0:
		b.violation("%s: an empty batch", name)
	case bytes != batch.Bytes:
		b.violation("%s: a batch of %d bytes says %d", name, bytes, batch.Bytes)
	case b.BatchLimit > 0 && bytes > b.BatchLimit && len(batch.Records) > 1:
		b.violation("%s: a batch of %d bytes, more than %d", name, bytes, b.BatchLimit)
	}
	history, known := batch.State.(*batchHistory)
	if p.open != nil && (!known || history != p.open || history.batch != batch ||
		!slices.Equal(history.records, batch.Records)) {
		b.violation("%s: another batch, or a changed one, came after attempt %d without a definite outcome", name,
			p.open.number)
	}
	if p.open == nil && batch.State != nil {
		b.violation("%s: a new batch has the state of an old one", name)
	}
	if !known || p.open == nil {
		history = &batchHistory{batch: batch, records: slices.Clone(batch.Records)}
		batch.State = history
	}
	history.number++
	return history
}

// apply makes the plan true.
func (b *Broker) apply(p *brokerPartition, history *batchHistory, plan Plan) sink.Outcome {
	o := plan.Outcome
	if o.Verdict == sink.Unanswered || o.Verdict == sink.Refused && history.written {
		o = sink.Outcome{Verdict: sink.Accepted}
	}
	if o.Verdict == sink.NotWritten && history.written {
		o.Verdict = sink.Unknown // an earlier attempt was written: no one may say that it was not
	}
	if o.Verdict != sink.Accepted && o.Written > 0 {
		history.front = o.Written
		if !history.written {
			history.offset = b.append(p, history, history.records[:o.Written])
		}
		o.FirstOffset = history.offset
	}
	if o.Verdict == sink.Accepted || o.Verdict == sink.Unknown && plan.Written {
		if !history.written || b.Forgetful {
			first := b.append(p, history, history.records[history.front:])
			if history.front == 0 {
				history.offset = first
			}
		}
		history.written = true
		o.FirstOffset = history.offset
	}
	return o
}

// append puts records at the end of the partition.
func (b *Broker) append(p *brokerPartition, history *batchHistory, records []*sink.Record) (first int64) {
	first = int64(len(p.log))
	for _, r := range records {
		b.arrivals++
		p.log = append(p.log, Message{ // copies: the submitter uses the record's bytes again
			Topic: r.Topic, Partition: history.batch.Partition, Offset: int64(len(p.log)),
			Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value), Headers: r.Headers.In(nil), Timestamp: r.Timestamp,
			Arrival: b.arrivals,
		})
	}
	return first
}

// reply lets the partitions go; a request that was cut has only unknown outcomes.
func (b *Broker) reply(batches []*sink.Batch, cut bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, batch := range batches {
		p := b.topics[batch.Topic].partitions[batch.Partition]
		p.out = false
		if cut {
			batch.Outcome = sink.Outcome{
				Verdict: sink.Unknown, Trouble: sink.ClusterTrouble, Pause: true, Err: errors.New("the request was cut off"),
			}
		}
		switch batch.Outcome.Verdict {
		case sink.NotWritten, sink.Unknown:
			p.open = batch.State.(*batchHistory)
			p.open.advance(batch.Outcome.Written)
		default:
			p.open = nil
		}
	}
}

// advance leaves out the front that the engine has been told of.
func (h *batchHistory) advance(told int) {
	h.records, h.front = h.records[told:], 0
	h.offset += int64(told)
}
