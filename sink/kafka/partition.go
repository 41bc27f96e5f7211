package kafka

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go/protocol/initproducerid"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/codes"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/connect"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/recordset"
)

// partition is the driver's state of a partition that it produces to. Its fields belong to the Produce call that
// holds busy.
type partition struct {
	topic string
	id    int32
	busy  atomic.Bool // K1

	producing bool            // next is valid: a producer id was taken
	next      recordset.Stamp // of the next new batch; its producer is the last one that the partition had, -1 for none

	// uncertain is the attempt whose range may have been written and has no verdict yet; nil when there is none (K2).
	uncertain *attempt
	lastAcked int64 // offset of the last acknowledged record, -1 when unknown

	lastAccepted, lastOdd time.Time // see odd.go
	oddSaid               time.Time // when the hook was told of odd answers last
}

// attempt is the driver's part of a batch, kept in Batch.State until the verdict.
type attempt struct {
	stamp   recordset.Stamp
	records int
	bytes   []byte // the encoded record set (K4); empty: to be encoded

	uncertain bool      // an attempt may have been written
	since     time.Time // when it was uncertain first
	lent      bool      // a connection may still be reading bytes
	odd       oddness
}

// partitionOf finds or makes the state of a partition and takes it for the caller.
func (d *Driver) partitionOf(topic string, id int32) *partition {
	key := topicPartition{topic, id}
	d.mu.Lock()
	p := d.partitions[key]
	if p == nil {
		p = &partition{topic: topic, id: id, next: recordset.Stamp{Producer: -1}, lastAcked: -1}
		d.partitions[key] = p
	}
	d.mu.Unlock()
	if !p.busy.CompareAndSwap(false, true) {
		panic(fmt.Sprintf("kafka: two batches in flight for %s/%d", topic, id))
	}
	return p
}

// prepare makes the batch ready to be sent: with the partition's next stamp, and encoded. Only a producer id that
// cannot be had is an error.
func (d *Driver) prepare(ctx context.Context, e *endpoint, p *partition, b *sink.Batch) error {
	a, _ := b.State.(*attempt)
	if p.uncertain != nil && p.uncertain != a {
		// The engine gave up a batch that may have been written and sends another one: never under the same range (K2).
		d.abandon(p, "NOT_RESENT", p.uncertain)
	}
	if !p.producing {
		if err := d.newProducer(ctx, e, p); err != nil {
			return err
		}
	}
	if a == nil {
		a = attempts.Get().(*attempt)
		a.records = len(b.Records)
		b.State = a
	}
	if a.stamp != p.next {
		// New, or overtaken by another batch while it was not written.
		a.discard()
		a.stamp, a.uncertain = p.next, false
	}
	if len(a.bytes) == 0 {
		d.encode(a, b)
	}
	return nil
}

// encode writes the batch's record set into the attempt, compressed once for all resends.
func (d *Driver) encode(a *attempt, b *sink.Batch) {
	a.bytes = recordset.Encode(a.bytes, b.Records, b.Bytes, a.stamp, d.config.Compression)
}

// discard forgets the encoded bytes.
func (a *attempt) discard() {
	if a.lent {
		a.bytes, a.lent = nil, false
	}
	a.bytes = a.bytes[:0]
}

// recycle gives the attempt back after its verdict, its buffer only if no connection can still be reading it (K4).
func (a *attempt) recycle() {
	if !a.lent {
		recordset.Recycle(a.bytes)
	}
	*a = attempt{}
	attempts.Put(a)
}

// attempts are those of batches that got their verdict, for reuse.
var attempts = sync.Pool{New: func() any { return new(attempt) }}

// doubt notes that an attempt may have been written. The time is the wall clock's: a machine that sleeps counts, too.
func (a *attempt) doubt() {
	if !a.uncertain {
		a.uncertain, a.since = true, time.Now().Round(0)
	}
}

// producerMemory is how long a broker surely knows a batch again. It forgets a producer id a day after the newest
// timestamp of the last batch under it (producer.id.expiration.ms; ProducerStateManager.isProducerExpired), and then
// takes any sequence of it. Some hours are for clocks that differ.
const producerMemory = 20 * time.Hour

// forgotten reports that the broker may have forgotten an attempt of the batch that was written, and so have written it
// twice.
func (a *attempt) forgotten(records []*sink.Record) bool {
	if !a.uncertain {
		return false
	}
	bound := time.Now().Add(-producerMemory)
	newest := int64(math.MinInt64)
	for _, r := range records {
		newest = max(newest, r.Timestamp)
	}
	return a.since.Before(bound) || newest < bound.UnixMilli()
}

// start is where times begin that goroutines share as numbers. They are by the clock that is never set.
var start = time.Now()

func sinceStart(t time.Time) int64 { return int64(t.Sub(start)) }

// after reports whether a time kept as a number, 0 for none, is later than t.
func after(at int64, t time.Time) bool { return at != 0 && at > sinceStart(t) }

// accepted moves the sequence behind the batch (K3).
func (d *Driver) accepted(p *partition, b *sink.Batch, firstOffset int64) {
	a := b.State.(*attempt)
	d.noteOffset(p, firstOffset)
	p.lastAccepted = time.Now()
	d.lastAccepted.Store(sinceStart(p.lastAccepted))
	p.uncertain = nil
	p.next.Sequence = recordset.After(a.stamp.Sequence, a.records)
	if firstOffset >= 0 {
		p.lastAcked = firstOffset + int64(a.records) - 1
	}
	if a.forgotten(b.Records) {
		d.abandon(p, "PRODUCER_ID_EXPIRED", a)
	}
}

// abandon gives up the producer id for the partition: its next batch begins at sequence 0 of another one. Records of an
// uncertain attempt may be in the topic already, and will be sent again or were.
func (d *Driver) abandon(p *partition, cause string, a *attempt) {
	p.producing, p.uncertain = false, nil
	r := Reset{Topic: p.topic, Partition: p.id, Cause: cause}
	if a != nil && a.uncertain {
		r.Uncertain = a.records
	}
	d.stats.producerResets.Add(1)
	d.stats.possibleDuplicates.Add(uint64(r.Uncertain))
	if d.config.Hooks.ProducerReset != nil {
		d.config.Hooks.ProducerReset(r)
	}
}

// Dropped is [sink.Dropper]. What was written of the batch went with its partition, but may have been read before; or
// it is there, and we may not ask.
func (d *Driver) Dropped(b *sink.Batch) {
	a, _ := b.State.(*attempt)
	if a == nil {
		return
	}
	p := d.partitionOf(b.Topic, b.Partition)
	defer p.busy.Store(false)
	switch {
	case !a.uncertain:
	case IsDeniedTopic(b.Outcome.Err):
		d.abandon(p, b.Outcome.Code, a)
	default:
		d.abandon(p, "PARTITION_GONE", a)
	}
	b.State = nil
	a.recycle()
}

// aheadPatience bounds how long a first batch may have to wait for a broker that is not its leader's.
const aheadPatience = 500 * time.Millisecond

// producerAhead takes the first producer id before a partition needs it, which also opens connections. Where that
// fails, the first batch asks again, and tells.
func (d *Driver) producerAhead() {
	select {
	case d.asking <- struct{}{}:
	default:
		return // someone asks already
	}
	defer func() { <-d.asking }()
	if d.producer.Load() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(d.ctx, aheadPatience)
	defer cancel()
	_, _ = d.initProducer(ctx, d.endpoint(d.candidates()[0]))
}

// askPatience is how long a partition waits for an id that another one asks for. The broker that was asked may be
// frozen while this partition's leader is well.
const askPatience = 250 * time.Millisecond

// newProducer takes a producer id that the partition has never used, at sequence 0. Partitions share one id, as the
// sequences are per id and partition; a partition that gave the shared one up makes the driver ask for a new one. Each
// id is shared once, when it was granted, so that none comes back to a partition that gave it up.
func (d *Driver) newProducer(ctx context.Context, e *endpoint, p *partition) error {
	if p.take(d.producer.Load()) {
		return nil
	}
	patience := time.NewTimer(askPatience)
	defer patience.Stop()
	select {
	case d.asking <- struct{}{}:
		defer func() { <-d.asking }()
	case <-patience.C:
	case <-ctx.Done():
		return fmt.Errorf("wait for a producer id: %w", context.Cause(ctx))
	}
	if p.take(d.producer.Load()) {
		return nil
	}
	s, err := d.initProducer(ctx, e)
	if err != nil {
		return err
	}
	p.next, p.producing = s, true
	return nil
}

// take begins to produce with the shared id, unless there is none or it is the one that was given up.
func (p *partition) take(shared *recordset.Stamp) bool {
	if shared == nil || shared.Producer == p.next.Producer {
		return false
	}
	p.next, p.producing = *shared, true
	return true
}

// Pace and patience of asking for a producer id while the brokers load their state, which they do for some tenths of a
// second after a start.
const (
	loadingPause    = 50 * time.Millisecond
	loadingPatience = 3 * time.Second
)

// initProducer asks the endpoint for a new producer id, which partitions share from then on. Any broker can answer it.
func (d *Driver) initProducer(ctx context.Context, e *endpoint) (recordset.Stamp, error) {
	ctx, cancel := context.WithTimeout(ctx, d.controlTimeout()+loadingPatience)
	defer cancel()
	giveUp := time.Now().Add(loadingPatience)
	for {
		request := connect.InitProducerID{TransactionTimeoutMs: 60_000, ProducerID: -1, ProducerEpoch: -1}
		answer, err := e.RoundTrip(ctx, &request)
		if err != nil {
			return recordset.Stamp{}, fmt.Errorf("ask %s for a producer id: %w", e.Address, err)
		}
		r := answer.(*initproducerid.Response)
		if r.ErrorCode == 0 {
			s := recordset.Stamp{Producer: r.ProducerID, Epoch: r.ProducerEpoch}
			d.producer.Store(&s)
			return s, nil
		}
		err = fmt.Errorf("ask %s for a producer id: %w", e.Address, codes.ErrorOf(r.ErrorCode, ""))
		if codes.Of(r.ErrorCode).Trouble == sink.ConfigurationTrouble || time.Now().After(giveUp) {
			return recordset.Stamp{}, err
		}
		if pause(ctx, loadingPause) != nil {
			return recordset.Stamp{}, err
		}
	}
}

// pause waits, or returns the cause of the context's end.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
