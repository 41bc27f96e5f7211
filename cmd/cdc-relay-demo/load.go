package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	kafkago "github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
)

const (
	demoTransactions = 50                     // per second at most; a higher rate makes larger ones
	demoPoll         = 100 * time.Millisecond // a fetch without a record ends after this, so that stopping is quick
	latenciesKept    = 4096                   // the newest, for the quantiles of the summary
)

// demoLoad is the demo's writer and its consumer, which know of each other only what was written.
type demoLoad struct {
	rate, aggregates int
	tolerant         bool       // the broker may be away, and topics are deleted
	gate             sync.Mutex // held while something is written; who holds it stops the writer

	mu          sync.Mutex // guards what follows
	outstanding map[string]struct{}
	sequence    map[string]int // by key: written last
	arrived     map[string]int // by key: received last
	total       demoTotals
	recent      []time.Duration                 // since the last interval
	kept        []time.Duration                 // a ring of latenciesKept
	longest     time.Duration                   // since longestWait was called
	changed     chan struct{}                   // closed when something arrives
	reading     map[string][]context.CancelFunc // by topic: end its readers, which begin again
	ignored     map[string]struct{}             // may arrive, and is not counted
}

type demoTotals struct {
	written, received, missing, duplicated, reordered int

	half, most time.Duration // quantiles 0.5 and 0.95
}

func newDemoLoad(rate, aggregates int) *demoLoad {
	return &demoLoad{
		rate: rate, aggregates: aggregates, outstanding: map[string]struct{}{}, sequence: map[string]int{},
		arrived: map[string]int{}, changed: make(chan struct{}), reading: map[string][]context.CancelFunc{},
		ignored: map[string]struct{}{},
	}
}

// write commits events at the rate until the context ends.
func (l *demoLoad) write(ctx context.Context, cfg config.Config) error {
	conn, err := store.Connect(ctx, relay.StoreConfig(cfg))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	pause := time.Second / time.Duration(min(l.rate, demoTransactions))
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	begun := time.Now()
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		due := int(time.Since(begun).Seconds()*float64(l.rate)) - n
		if due == 0 {
			continue
		}
		// Not with ctx: a commit whose answer is not waited for may have happened or not, and no one would know.
		l.gate.Lock()
		err := l.insert(context.WithoutCancel(ctx), conn, n, due)
		l.gate.Unlock()
		if err != nil {
			return fmt.Errorf("write events: %w", err)
		}
		n += due
	}
}

// insert commits events number first and following in one transaction.
func (l *demoLoad) insert(ctx context.Context, conn *pgx.Conn, first, count int) error {
	var types, keys, kinds, payloads []string
	for n := first; n < first+count; n++ {
		aggregate := n % l.aggregates
		kind := demoTypes[aggregate%len(demoTypes)]
		key := fmt.Sprintf("%s-%d", kind, aggregate)
		l.sequence[key]++ // only the writer uses it
		types, keys, kinds = append(types, kind), append(keys, key), append(kinds, kind+" changed")
		payloads = append(payloads, fmt.Sprintf(`{"sequence": %d, "note": "hello from the demo"}`, l.sequence[key]))
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
			SELECT t, k, e, p::jsonb FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY
			AS u (t, k, e, p, n) ORDER BY n RETURNING id::text`,
			types, keys, kinds, payloads)
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		l.mu.Lock() // before the commit: the consumer may be faster than its answer
		defer l.mu.Unlock()
		for _, id := range ids {
			l.outstanding[id] = struct{}{}
		}
		l.total.written += len(ids)
		return nil
	})
}

// arrival is an event as the consumer received it, from any broker.
type arrival struct {
	id, created, key string
	value            []byte
}

// consume reads what the relay sends until the context ends; of Kafka all partitions, side by side.
func (l *demoLoad) consume(ctx context.Context, cfg config.Config) error {
	if cfg.Sink == config.SinkNATS {
		return consumeNATS(ctx, cfg.NATS.URL, demoTopics(), l.take)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, topic := range demoTopics() {
		for partition := range demoPartitions {
			group.Go(func() error {
				for {
					err := l.read(ctx, kafkago.ReaderConfig{
						Brokers: cfg.Kafka.Brokers, Topic: topic, Partition: partition, MinBytes: 1, MaxBytes: 4 << 20,
						MaxWait: demoPoll, ReadBackoffMin: demoPoll, ReadBackoffMax: demoPoll,
					})
					if isOver(ctx) {
						return nil
					}
					if err != nil {
						return fmt.Errorf("consume topic %s: %w", topic, err)
					}
				}
			})
		}
	}
	return group.Wait()
}

// read reads a partition from its beginning, until the context ends or reopen is called.
func (l *demoLoad) read(ctx context.Context, c kafkago.ReaderConfig) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.mu.Lock()
	l.reading[c.Topic] = append(l.reading[c.Topic], cancel)
	l.mu.Unlock()
	reader := kafkago.NewReader(c)
	defer func() { _ = reader.Close() }()
	for {
		m, err := reader.ReadMessage(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			l.take(arrivalOf(m), time.Now())
		case !l.tolerant: // else the reader goes on by itself
			return err
		}
	}
}

// reopen has a topic read from its beginning: it is another one.
func (l *demoLoad) reopen(topic string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, stop := range l.reading[topic] {
		stop()
	}
	delete(l.reading, topic)
}

// ignore has an event that was not written by write not be counted.
func (l *demoLoad) ignore(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ignored[id] = struct{}{}
}

func arrivalOf(m kafkago.Message) arrival {
	r := arrival{key: string(m.Key), value: m.Value}
	for _, h := range m.Headers {
		switch h.Key {
		case "id":
			r.id = string(h.Value)
		case "created_at":
			r.created = string(h.Value)
		}
	}
	return r
}

func (l *demoLoad) take(r arrival, now time.Time) {
	created, _ := time.Parse(time.RFC3339Nano, r.created)
	var payload struct{ Sequence int }
	_ = json.Unmarshal(r.value, &payload) // one that cannot be read has sequence 0 and so counts as out of order
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, is := l.ignored[r.id]; is {
		return
	}
	if _, expected := l.outstanding[r.id]; !expected {
		l.total.duplicated++
		return
	}
	delete(l.outstanding, r.id)
	l.total.received++
	if payload.Sequence != l.arrived[r.key]+1 {
		l.total.reordered++
	}
	l.arrived[r.key] = payload.Sequence
	latency := now.Sub(created)
	l.recent, l.longest = append(l.recent, latency), max(l.longest, latency)
	if len(l.kept) < latenciesKept {
		l.kept = append(l.kept, latency)
	} else {
		l.kept[l.total.received%latenciesKept] = latency
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// await waits until everything that was written has arrived.
func (l *demoLoad) await(ctx context.Context, patience time.Duration) {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		l.mu.Lock()
		left, changed := len(l.outstanding), l.changed
		l.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-changed:
		case <-timeout.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// catchUp waits until all that is written by now has arrived.
func (l *demoLoad) catchUp(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l.mu.Lock()
	waiting := maps.Clone(l.outstanding)
	l.mu.Unlock()
	for {
		l.mu.Lock()
		maps.DeleteFunc(waiting, func(id string, _ struct{}) bool {
			_, still := l.outstanding[id]
			return !still
		})
		changed := l.changed
		l.mu.Unlock()
		if len(waiting) == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d events did not arrive within %s", len(waiting), patience)
		}
	}
}

// longestWait is the longest latency since the last call.
func (l *demoLoad) longestWait() (d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d, l.longest = l.longest, 0
	return d
}

// interval gives the totals so far and the quantiles of the latencies since the last call.
func (l *demoLoad) interval() (now demoTotals, half, most time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	half, most = quantiles(l.recent)
	l.recent = l.recent[:0]
	return l.total, half, most
}

func (l *demoLoad) totals() demoTotals {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.total
	t.missing = len(l.outstanding)
	t.half, t.most = quantiles(l.kept)
	return t
}

func quantiles(of []time.Duration) (half, most time.Duration) {
	if len(of) == 0 {
		return 0, 0
	}
	sorted := slices.Clone(of)
	slices.Sort(sorted)
	return sorted[len(sorted)/2], sorted[min(len(sorted)*95/100, len(sorted)-1)]
}
