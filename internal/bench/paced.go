package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
)

const (
	warmUp     = 2 * time.Second // before latencies count: connections, plans, the broker's first requests
	fetchBytes = 4 << 20
	fetchWait  = 100 * time.Millisecond
)

// paced commits single rows at a rate while the relay runs, and takes the time from COMMIT returned to received.
func (o Options) paced(ctx context.Context, b *area, rate int, one *Outcome) error {
	r, end, err := b.relay(ctx)
	if err != nil {
		return err
	}
	p := &pace{o: o, b: b, committed: map[string]time.Time{}, received: map[string]time.Time{}}
	consuming, stopConsuming := context.WithCancel(ctx)
	defer stopConsuming()
	consumers, consumersCtx := errgroup.WithContext(consuming)
	for partition := range o.Partitions {
		consumers.Go(func() error { return p.consume(consumersCtx, partition) })
	}
	err = p.write(consumersCtx, rate)
	if err == nil {
		err = b.poll(consumersCtx, "every event has arrived", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return len(p.received) >= len(p.committed) || r.Status().Role == relay.RoleHalted
		})
	}
	stopConsuming()
	if err := errors.Join(err, consumers.Wait(), end()); err != nil {
		return err
	}
	p.judge(one)
	return nil
}

// pace is one pace: what was committed when, and received when.
type pace struct {
	o Options
	b *area

	mu                  sync.Mutex
	counting            time.Time            // what is committed before does not count
	ended               time.Time            // of the writing
	committed, received map[string]time.Time // by event id
}

// write commits at the rate for the time, from a few connections; an aggregate's events come from one of them.
func (p *pace) write(ctx context.Context, rate int) error {
	group, ctx := errgroup.WithContext(ctx)
	due := make([]chan int, writers)
	for i := range due {
		due[i] = make(chan int, rate) // a second's worth: a slow commit does not slow the pace
		group.Go(func() error { return p.writer(ctx, due[i]) })
	}
	group.Go(func() error {
		defer func() {
			for _, d := range due {
				close(d)
			}
		}()
		begun := time.Now()
		p.mu.Lock()
		p.counting = begun.Add(warmUp)
		p.mu.Unlock()
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for n := 0; time.Since(begun) < warmUp+p.o.For; {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			for target := int(time.Since(begun).Seconds() * float64(rate)); n < target; n++ {
				select {
				case due[n%p.o.Keys%writers] <- n:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
		}
		return nil
	})
	err := group.Wait()
	p.mu.Lock()
	p.ended = time.Now()
	p.mu.Unlock()
	return err
}

func (p *pace) writer(ctx context.Context, due <-chan int) error {
	conn, err := store.Connect(ctx, relay.StoreConfig(p.b.cfg))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	insert := fmt.Sprintf(`INSERT INTO %s (aggregate_type, aggregate_id, event_type, payload)
VALUES ('bench', 'key-' || $1::int, 'benched',
  jsonb_build_object('n', $2::int, 'filler', repeat('x', %d))) RETURNING id::text`,
		p.b.cfg.Outbox.Table, max(0, p.o.Payload-len(`{"n": 100000, "filler": ""}`)))
	for n := range due {
		var id string
		if err := conn.QueryRow(ctx, insert, n%p.o.Keys, n).Scan(&id); err != nil {
			return fmt.Errorf("commit an event: %w", err)
		}
		now := time.Now()
		p.mu.Lock()
		p.committed[id] = now
		p.mu.Unlock()
	}
	return nil
}

func (p *pace) consume(ctx context.Context, partition int) error {
	reader := kafkago.NewReader(kafkago.ReaderConfig{
		Brokers: p.b.cfg.Kafka.Brokers, Dialer: p.b.dialer, Topic: p.b.topic, Partition: partition,
		MinBytes: 1, MaxBytes: fetchBytes, MaxWait: fetchWait, ReadBackoffMin: time.Millisecond, ReadBackoffMax: tick,
	})
	defer func() { _ = reader.Close() }()
	for {
		m, err := reader.ReadMessage(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("consume topic %s: %w", p.b.topic, err)
		}
		now := time.Now()
		for _, h := range m.Headers {
			if h.Key == p.b.cfg.Message.HeaderNames()[0] {
				p.mu.Lock()
				if _, again := p.received[string(h.Value)]; !again {
					p.received[string(h.Value)] = now
				}
				p.mu.Unlock()
			}
		}
	}
}

// judge turns the times into latencies. What is received before its writer has seen COMMIT return took no time.
func (p *pace) judge(one *Outcome) {
	var latencies []float64
	for id, at := range p.committed {
		if received, ok := p.received[id]; ok && at.After(p.counting) {
			latencies = append(latencies, max(0, received.Sub(at).Seconds()*1000))
		}
	}
	one.Events = len(p.committed)
	if len(latencies) == 0 {
		return
	}
	slices.Sort(latencies)
	one.Rate = float64(len(latencies)) / p.ended.Sub(p.counting).Seconds()
	one.P50, one.P95 = Quantile(latencies, .5), Quantile(latencies, .95)
	one.P99, one.P999 = Quantile(latencies, .99), Quantile(latencies, .999)
	one.Most = latencies[len(latencies)-1]
}
