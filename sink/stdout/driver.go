package stdout

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"slices"
	"syscall"

	"github.com/cdc-relay/cdc-relay/sink"
)

const (
	// DefaultPartitions keeps the lines in commit order: several partitions are written one after the other.
	DefaultPartitions = 1

	batchLimit = 1 << 20 // bytes of records in a batch, so that a slow reader sees lines soon
	recordSize = 16      // what Size adds for a record's fixed parts
	keptBuffer = 4 << 20 // a larger one is not kept for the next request
	onlyNode   = 0
)

// Config says where to print. Partitions is the number of partitions of a topic, at least 1; nil means
// DefaultPartitions for each.
type Config struct {
	Writer     io.Writer
	Partitions func(topic string) int
}

// Driver prints records. Make it with New.
type Driver struct {
	partitions func(topic string) int
	changed    chan struct{} // never closed: neither partitions nor nodes change
	turn       chan *output  // holds the output while no one writes
	keyless    uint32        // for Partition, which is called one call at a time
}

// output holds the unwritten lines and their writer. The taker from Driver.turn owns it until it is put back.
type output struct {
	writer io.Writer
	rest   []byte // lines, or the end of one, that a write has not brought out yet
	ends   map[place]int64
}

type place struct {
	topic     string
	partition int32
}

// printed is kept in Batch.State once the batch's lines are in output.rest or written.
type printed struct{ first int64 }

// New makes a driver. It starts nothing and writes nothing.
func New(c Config) *Driver {
	if c.Partitions == nil {
		c.Partitions = func(string) int { return DefaultPartitions }
	}
	d := &Driver{partitions: c.Partitions, changed: make(chan struct{}), turn: make(chan *output, 1)}
	d.turn <- &output{writer: c.Writer, ends: make(map[place]int64)}
	return d
}

// Partitions implements [sink.Driver]: every topic exists.
func (d *Driver) Partitions(topic string) (int, error) { return d.partitions(topic), nil }

// Partition implements [sink.Driver]: by hash of the key, one after the other without one.
func (d *Driver) Partition(r *sink.Record, partitions int) int32 {
	if r.Key == nil {
		d.keyless++
		return int32(d.keyless % uint32(partitions))
	}
	h := fnv.New32a()
	_, _ = h.Write(r.Key)
	return int32(h.Sum32() % uint32(partitions))
}

// Node implements [sink.Driver].
func (d *Driver) Node(string, int32) int32 { return onlyNode }

// Changed implements [sink.Driver].
func (d *Driver) Changed() <-chan struct{} { return d.changed }

// Limits implements [sink.Driver].
func (d *Driver) Limits(string) (batch, record int) { return batchLimit, 0 }

// Size implements [sink.Driver]. It counts the record, not what JSON adds to it.
func (d *Driver) Size(r *sink.Record) int {
	return len(r.Key) + len(r.Value) + len(r.Headers.Block()) + recordSize
}

// Close implements [sink.Driver]. The writer stays open. A write that its reader blocks ends when the reader goes on or
// goes away.
func (d *Driver) Close() error { return nil }

// Produce implements [sink.Driver]. A reader that does not read blocks the write, which nothing can interrupt; when the
// context ends first, the write goes on behind it and the outcome is unknown.
func (d *Driver) Produce(ctx context.Context, _ int32, batches []*sink.Batch) {
	var out *output
	select {
	case out = <-d.turn:
	case <-ctx.Done():
		failed(batches, fmt.Errorf("wait for an earlier write: %w", context.Cause(ctx)))
		return
	}
	batches = slices.DeleteFunc(slices.Clone(batches), func(b *sink.Batch) bool { return !out.take(b) })
	written := make(chan error, 1)
	go func() {
		err := out.flush()
		d.turn <- out
		written <- err
	}()
	var err error
	select {
	case err = <-written:
	case <-ctx.Done():
		err = fmt.Errorf("wait for the reader: %w", context.Cause(ctx))
	}
	if err != nil {
		failed(batches, err)
		return
	}
	for _, b := range batches {
		b.Outcome = sink.Outcome{Verdict: sink.Accepted, FirstOffset: b.State.(printed).first}
	}
}

// take puts the batch's lines behind the rest, once. False: it is refused, and none of them is there.
func (o *output) take(b *sink.Batch) bool {
	if b.State != nil {
		return true
	}
	at, before := place{b.Topic, b.Partition}, len(o.rest)
	first := o.ends[at]
	n, reason := sink.Compose(b.Records, func(i int, r *sink.Record) {
		o.rest = appendLine(o.rest, r, b.Partition, first+int64(i))
	})
	if reason != nil {
		o.rest = o.rest[:before]
		b.Outcome = sink.Outcome{Verdict: sink.Refused, Guilty: []int{n}, Reasons: []*sink.Reason{reason}, Unsent: true}
		return false
	}
	o.ends[at] = first + int64(len(b.Records))
	b.State = printed{first}
	return true
}

// flush writes the rest. After an error it holds what the writer has not taken.
func (o *output) flush() error {
	if len(o.rest) == 0 {
		return nil
	}
	n, err := o.writer.Write(o.rest)
	n = min(max(n, 0), len(o.rest))
	if n < len(o.rest) && err == nil {
		err = io.ErrShortWrite
	}
	if err != nil {
		o.rest = append(o.rest[:0], o.rest[n:]...)
		return fmt.Errorf("write: %w", err)
	}
	if o.rest = o.rest[:0]; cap(o.rest) > keptBuffer {
		o.rest = nil
	}
	return nil
}

// failed gives each batch its outcome after an error: one that is not among the lines yet was certainly not written.
func failed(batches []*sink.Batch, err error) {
	trouble := sink.ClusterTrouble
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) {
		trouble = sink.ConfigurationTrouble // no one reads any more: trying again does not help
	}
	for _, b := range batches {
		b.Outcome = sink.Outcome{Verdict: sink.Unknown, Trouble: trouble, Err: err, Pause: true}
		if b.State == nil {
			b.Outcome.Verdict = sink.NotWritten
		}
	}
}
