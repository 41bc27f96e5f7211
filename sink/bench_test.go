package sink_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/sink"
)

// swallow is a driver that accepts everything at once.
type swallow struct {
	partitions int
	changed    chan struct{}
}

func (s swallow) Partitions(string) (int, error) { return s.partitions, nil }
func (s swallow) Partition(r *sink.Record, n int) int32 {
	return int32(binary.LittleEndian.Uint32(r.Key[4:]) * 2654435761 >> 8 % uint32(n))
}
func (s swallow) Node(_ string, p int32) int32      { return p % 3 }
func (s swallow) Changed() <-chan struct{}          { return s.changed }
func (s swallow) Limits(string) (batch, record int) { return 1 << 20, 1 << 20 }
func (s swallow) Size(r *sink.Record) int           { return len(r.Key) + len(r.Value) }
func (s swallow) Close() error                      { return nil }
func (s swallow) Produce(_ context.Context, _ int32, batches []*sink.Batch) {
	for _, b := range batches {
		b.Outcome = sink.Outcome{Verdict: sink.Accepted}
	}
}

// BenchmarkEngine is the engine's own cost of a record from Submit to Settled; the goal is 150 ns and no allocation.
// Three goroutines work as in the relay: one submits, one collects, one settles.
func BenchmarkEngine(b *testing.B) {
	const chunk = 500
	// Chunks of records that are settled, more than the window in all, and chunks that were submitted.
	free, spent := make(chan []*sink.Record, 120), make(chan []*sink.Record, 121)
	spent <- make([]*sink.Record, 0, chunk)
	for n := range cap(free) {
		records := make([]*sink.Record, chunk)
		for i := range records {
			records[i] = &sink.Record{Topic: "topic", Key: fmt.Appendf(nil, "%08d", (n*chunk+i)%1000), Value: make([]byte, 8),
				Cost: 300}
		}
		free <- records
	}
	e := sink.New(swallow{partitions: 12, changed: make(chan struct{})}, sink.Config{})
	ctx := context.Background()
	full, empty := make(chan []*sink.Record, 8), make(chan []*sink.Record, 8)
	for range cap(empty) {
		empty <- make([]*sink.Record, 0, 4096)
	}
	go func() {
		defer close(full)
		for n := 0; n < b.N; {
			some, err := e.Results(ctx, (<-empty)[:0])
			if err != nil {
				b.Error(err)
				return
			}
			n += len(some)
			full <- some
		}
	}()
	b.ReportAllocs()
	b.ResetTimer()
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		next := (<-spent)[:0]
		for some := range full {
			e.Settled(some)
			for _, r := range some { // in another order than they were submitted in
				if next = append(next, r); len(next) == chunk {
					free <- next
					next = (<-spent)[:0]
				}
			}
			empty <- some
		}
	}()
	for n := 0; n < b.N; {
		some := <-free
		if _, err := e.Submit(ctx, some[:min(chunk, b.N-n)]); err != nil {
			b.Fatal(err)
		}
		n += len(some)
		spent <- some
	}
	<-settled
	b.StopTimer()
	if err := e.Close(ctx); err != nil {
		b.Fatal(err)
	}
}
