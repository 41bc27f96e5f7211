package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/sink"
	sinkkafka "github.com/cdc-relay/cdc-relay/sink/kafka"
)

// sinkProducer is the relay's engine and driver, with the relay's defaults.
type sinkProducer struct {
	*desk
	engine *sink.Engine
	ended  chan struct{}

	batch []*sink.Record // of send

	mu   sync.Mutex
	free []*sink.Record // guarded by mu
}

// sinkSlot is a record that is used again once it is settled, as the relay does; its number is of use only where
// latency is measured.
type sinkSlot struct {
	sink.Record
	n int
}

func newSinkProducer(d *desk) (producer, error) {
	driver, err := sinkkafka.New(sinkkafka.Config{Brokers: d.Brokers})
	if err != nil {
		return nil, err
	}
	p := &sinkProducer{desk: d, engine: sink.New(driver, sink.Config{MaxEvents: d.Outstanding}),
		ended: make(chan struct{})}
	go p.settle()
	return p, nil
}

func (p *sinkProducer) send(first, n int) error {
	p.batch = p.batch[:0]
	p.mu.Lock()
	for range n {
		if last := len(p.free) - 1; last >= 0 {
			p.batch = append(p.batch, p.free[last])
			p.free = p.free[:last]
			continue
		}
		s := new(sinkSlot)
		s.Owner = s
		p.batch = append(p.batch, &s.Record)
	}
	p.mu.Unlock()
	now := time.Now().UnixMilli()
	for i, r := range p.batch {
		n := first + i
		r.Topic, r.Key, r.Value, r.Timestamp, r.Cost = p.Topic, p.key(n), p.value(n), now, p.Payload+100
		if p.acked != nil {
			r.Owner.(*sinkSlot).n = n
		}
	}
	_, err := p.engine.Submit(context.Background(), p.batch)
	return err
}

func (p *sinkProducer) settle() {
	defer close(p.ended)
	var batch []*sink.Record
	for {
		var err error
		if batch, err = p.engine.Results(context.Background(), batch[:0]); err != nil {
			return
		}
		now := time.Now()
		for _, r := range batch {
			if r.Result != sink.Published {
				p.fail(fmt.Errorf("record not published: %w", r.Reason))
			}
			if p.acked != nil {
				p.note(r.Owner.(*sinkSlot).n, now)
			}
		}
		p.engine.Settled(batch)
		p.mu.Lock()
		p.free = append(p.free, batch...)
		p.mu.Unlock()
		p.done(len(batch))
	}
}

func (p *sinkProducer) close() error {
	err := p.engine.Close(context.Background())
	<-p.ended
	return err
}

// franzProducer is franz-go: idempotent, its records used again too, timestamps taken once for each hand-over.
type franzProducer struct {
	*desk
	client *kgo.Client
	slots  sync.Pool
}

// franzSlot is a record with its promise, so that neither is made again each time.
type franzSlot struct {
	kgo.Record
	n       int
	promise func(*kgo.Record, error)
}

// newFranzProducer makes one without linger.
func newFranzProducer(d *desk) (producer, error) { return franz(d, kgo.ProducerLinger(0)) }

// newLingeringFranzProducer makes one with the library's own linger, 10 ms.
func newLingeringFranzProducer(d *desk) (producer, error) { return franz(d) }

func franz(d *desk, further ...kgo.Opt) (producer, error) {
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(d.Brokers...), kgo.DefaultProduceTopic(d.Topic), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(d.Outstanding),
	}, further...)...)
	if err != nil {
		return nil, err
	}
	p := &franzProducer{desk: d, client: client}
	p.slots.New = func() any {
		s := new(franzSlot)
		s.promise = func(_ *kgo.Record, err error) {
			if err != nil {
				p.fail(err)
			}
			if p.acked != nil {
				p.note(s.n, time.Now())
			}
			p.slots.Put(s)
			p.done(1)
		}
		return s
	}
	return p, nil
}

func (p *franzProducer) send(first, n int) error {
	now := time.Now()
	for i := range n {
		s := p.slots.Get().(*franzSlot)
		s.n = first + i
		s.Record = kgo.Record{Key: p.key(s.n), Value: p.value(s.n), Timestamp: now}
		p.client.Produce(context.Background(), &s.Record, s.promise)
	}
	return nil
}

func (p *franzProducer) close() error {
	p.client.Close()
	return nil
}

// writerProducer is kafka-go's Writer, which is not idempotent. As fast as it goes: asynchronous, batches of 2,000 or 5
// ms. At a pace: one caller that writes what came while the last write was under way, each message the end of a batch
// at once, which is faster than any linger.
type writerProducer struct {
	*desk
	writer *kafka.Writer
	room   chan struct{} // a token for each record that may be outstanding

	batch []kafka.Message // of send

	mu      sync.Mutex
	pending []kafka.Message // at a pace, until the caller takes it; guarded by mu
	more    chan struct{}   // holds a token when there is something pending; closed at the end
	ended   chan struct{}
}

func newWriterProducer(d *desk) (producer, error) {
	p := &writerProducer{desk: d, writer: &kafka.Writer{
		Addr: kafka.TCP(d.Brokers...), Topic: d.Topic, Balancer: kafka.Murmur2Balancer{}, RequiredAcks: kafka.RequireAll,
		BatchBytes: 1 << 20, Async: true, BatchSize: 2000, BatchTimeout: 5 * time.Millisecond,
	}}
	p.room = make(chan struct{}, max(d.Outstanding/handOver, 1))
	if d.Rate > 0 {
		p.writer.Async, p.writer.BatchTimeout = false, time.Nanosecond
		p.more, p.ended = make(chan struct{}, 1), make(chan struct{})
		go p.write()
		return p, nil
	}
	p.writer.Completion = func(messages []kafka.Message, err error) {
		if err != nil {
			p.fail(err)
		}
		ends := 0
		for _, m := range messages {
			if m.WriterData != nil {
				ends++
			}
		}
		for range ends {
			<-p.room
		}
		p.done(len(messages))
	}
	return p, nil
}

// lastOfHandOver marks a message whose acknowledgement makes room for another hand-over: about as much is outstanding
// as with a count of records, for none of its cost.
var lastOfHandOver = new(int)

func (p *writerProducer) send(first, n int) error {
	p.batch = p.batch[:0]
	for i := range n {
		p.batch = append(p.batch, kafka.Message{Key: p.key(first + i), Value: p.value(first + i)})
	}
	if p.more == nil {
		p.batch[n-1].WriterData = lastOfHandOver
		p.room <- struct{}{}
		return p.writer.WriteMessages(context.Background(), p.batch...)
	}
	for i := range p.batch {
		p.batch[i].WriterData = first + i
	}
	p.mu.Lock()
	p.pending = append(p.pending, p.batch...)
	p.mu.Unlock()
	select {
	case p.more <- struct{}{}:
	default:
	}
	return nil
}

// write is the one caller at a pace.
func (p *writerProducer) write() {
	defer close(p.ended)
	var batch []kafka.Message
	for range p.more {
		p.mu.Lock()
		batch, p.pending = p.pending, batch[:0]
		p.mu.Unlock()
		if len(batch) == 0 {
			continue
		}
		if err := p.writer.WriteMessages(context.Background(), batch...); err != nil {
			p.fail(err)
			return
		}
		now := time.Now()
		for _, m := range batch {
			p.note(m.WriterData.(int), now)
		}
		p.done(len(batch))
	}
}

func (p *writerProducer) close() error {
	if p.more != nil {
		close(p.more)
		<-p.ended
	}
	return p.writer.Close()
}
