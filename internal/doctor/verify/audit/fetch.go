package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// read implements source: it reads up to the end that was found. A log can end in offsets that have no record any more;
// after a while without one the rest is taken to be that, and said. What passes, such as a leader that moves, is waited
// for.
func (k onKafka) read(ctx context.Context, p *partitionEnd, each func(stored) error) error {
	for moved := time.Now(); p.next < p.end; {
		before := p.next
		records, err := k.fetch(ctx, p)
		if err == nil {
			if err := take(records, p, each); err != nil {
				return err
			}
		}
		switch stood := time.Since(moved); {
		case p.next > before:
			moved = time.Now()
			continue
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && (!passes(err) || stood > leaderPatience):
			return fmt.Errorf("read topic %s, partition %d at offset %d: %w", p.topic, p.partition, p.next, err)
		case err == nil && stood > readPatience:
			p.note = fmt.Sprintf("topic %s, partition %d: no record came from offset %d to its end at %d", p.topic, p.partition,
				p.next, p.end)
			p.unread, p.next = p.next, p.end
			return nil
		}
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
		}
	}
	return nil
}

// passes reports whether an error may be over soon: a connection that breaks, a leader that moves. Another code is an
// answer.
func passes(err error) bool {
	code, answered := errors.AsType[kafkago.Error](err)
	return !answered || code.Temporary() || slices.Contains(leaderless, code)
}

// fetch asks for records by single requests: the library's reader gives an empty value as nil, like a tombstone's.
func (k onKafka) fetch(ctx context.Context, p *partitionEnd) (kafkago.RecordReader, error) {
	answer, err := k.client.Fetch(ctx, &kafkago.FetchRequest{
		Topic: p.topic, Partition: p.partition, Offset: p.next, MinBytes: 1, MaxBytes: fetchBytes, MaxWait: fetchWait,
	})
	if err == nil {
		err = answer.Error
	}
	// retention took the beginning in the meantime, or the log is shorter than it was
	if errors.Is(err, kafkago.OffsetOutOfRange) {
		err = k.askOnce(ctx, p.topic, []*partitionEnd{p}, kafkago.FirstOffsetOf,
			func(p *partitionEnd, o kafkago.PartitionOffsets) {
				p.next = min(max(p.next, o.FirstOffset), p.end)
			})
		return kafkago.NewRecordReader(), err
	}
	if err != nil {
		return nil, err
	}
	return answer.Records, nil
}

// take hands out the records of one answer, from the offset that is next to the end.
func take(records kafkago.RecordReader, p *partitionEnd, each func(stored) error) error {
	for _, batch := range batchesOf(records) {
		for {
			rec, err := batch.ReadRecord()
			if errors.Is(err, io.EOF) {
				break
			}
			if err == nil {
				_, marker := batch.(*protocol.ControlBatch)
				err = takeOne(rec, marker, p, each)
			}
			if err != nil {
				return fmt.Errorf("read topic %s, partition %d behind offset %d: %w", p.topic, p.partition, p.next, err)
			}
		}
	}
	return nil
}

// batchesOf shows the batches that the library passes over, too: the markers of transactions, which take offsets.
func batchesOf(records kafkago.RecordReader) []kafkago.RecordReader {
	if stream, ok := records.(*protocol.RecordStream); ok {
		return stream.Records
	}
	return []kafkago.RecordReader{records}
}

func takeOne(rec *kafkago.Record, marker bool, p *partitionEnd, each func(stored) error) error {
	key, err := allOf(rec.Key)
	value, valueErr := allOf(rec.Value)
	if err = errors.Join(err, valueErr); err != nil {
		return err
	}
	if rec.Offset < p.next || rec.Offset >= p.end { // a batch may begin before the offset that was asked for
		return nil
	}
	p.next = rec.Offset + 1
	if marker {
		return nil
	}
	return each(stored{Offset: rec.Offset, Key: key, Value: value, Headers: headersOf(rec.Headers)})
}

func headersOf(headers []kafkago.Header) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for _, h := range headers {
			if !yield(h.Key, h.Value) {
				return
			}
		}
	}
}

// allOf is nil for null only, and gives back what the bytes are read from.
func allOf(b kafkago.Bytes) ([]byte, error) {
	if b == nil {
		return nil, nil
	}
	defer func() { _ = b.Close() }()
	return kafkago.ReadAll(b)
}
