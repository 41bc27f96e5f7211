package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/verify"
)

const fetchWait = 250 * time.Millisecond

// readPartition reads up to the end that was found. A log can end in offsets that have no record any more; after a
// while without one the rest is taken to be that, and said. What passes, such as a leader that moves, is waited for.
func (r *topicReader) readPartition(ctx context.Context, p *partitionEnd, t *truth, seen *atomic.Int64) error {
	for moved := time.Now(); p.next < p.end; {
		before := p.next
		records, err := r.fetch(ctx, p)
		if err == nil {
			if err := r.take(records, p, t, seen); err != nil {
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

// passes says whether an error may be over soon: a connection that breaks, a leader that moves. Another code is an
// answer.
func passes(err error) bool {
	code, answered := errors.AsType[kafkago.Error](err)
	return !answered || code.Temporary() || slices.Contains(leaderless, code)
}

// fetch asks for records by single requests: the library's reader gives an empty value as nil, like a tombstone's.
func (r *topicReader) fetch(ctx context.Context, p *partitionEnd) (kafkago.RecordReader, error) {
	answer, err := r.client.Fetch(ctx, &kafkago.FetchRequest{
		Topic: p.topic, Partition: p.partition, Offset: p.next, MinBytes: 1, MaxBytes: fetchBytes, MaxWait: fetchWait,
	})
	if err == nil {
		err = answer.Error
	}
	// retention took the beginning meanwhile, or the log is shorter than it was
	if errors.Is(err, kafkago.OffsetOutOfRange) {
		err = r.askOnce(ctx, p.topic, []*partitionEnd{p}, kafkago.FirstOffsetOf,
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

// take hands the records of one answer to the auditor, from the offset that is next to the end.
func (r *topicReader) take(records kafkago.RecordReader, p *partitionEnd, t *truth, seen *atomic.Int64) error {
	for _, batch := range batchesOf(records) {
		for {
			rec, err := batch.ReadRecord()
			if errors.Is(err, io.EOF) {
				break
			}
			if err == nil {
				_, marker := batch.(*protocol.ControlBatch)
				err = r.takeOne(rec, marker, p, t, seen)
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

func (r *topicReader) takeOne(rec *kafkago.Record, marker bool, p *partitionEnd, t *truth, seen *atomic.Int64) error {
	key, err := allOf(rec.Key)
	value, valueErr := allOf(rec.Value)
	if err = errors.Join(err, valueErr); err != nil {
		return err
	}
	if rec.Offset < p.next || rec.Offset >= p.end { // a batch may begin before the offset that was asked for
		return nil
	}
	p.next = rec.Offset + 1
	seen.Add(1)
	if marker {
		return nil
	}
	m := kafkago.Message{Topic: p.topic, Partition: p.partition, Offset: rec.Offset, Key: key, Value: value,
		Headers: rec.Headers}
	record, ours := r.record(m)
	if !ours {
		return nil
	}
	if record.ID == "" && hasHeader(m, sourceHeader) {
		p.nameless.add(rec.Offset)
	}
	t.pending.seen(record.ID)
	return t.auditor.Record(record)
}

// sourceHeader says which relay's table a record is from.
const sourceHeader = "x-outbox-source"

func hasHeader(m kafkago.Message, name string) bool {
	return slices.ContainsFunc(m.Headers, func(h kafkago.Header) bool { return h.Key == name })
}

// allOf is nil for null only, and gives back what the bytes are read from.
func allOf(b kafkago.Bytes) ([]byte, error) {
	if b == nil {
		return nil, nil
	}
	defer func() { _ = b.Close() }()
	return kafkago.ReadAll(b)
}

// record takes from a message what the judge needs; false for one of another relay.
func (r *topicReader) record(m kafkago.Message) (verify.Record, bool) {
	record := verify.Record{Topic: m.Topic, Partition: int32(m.Partition), Offset: m.Offset, Key: m.Key,
		Value: verify.DigestOf(payloadOf(r.cfg.Message.Format, r.payload, m.Value))}
	for _, h := range m.Headers {
		switch h.Key {
		case r.idHeader:
			record.ID = string(h.Value)
		case "x-outbox-late", "x-outbox-replay":
			record.Late = true
		case sourceHeader:
			if len(r.sources) > 0 && !slices.ContainsFunc(r.sources, func(source string) bool {
				return outbox.SameSource(string(h.Value), source)
			}) {
				return record, false
			}
		}
	}
	return record, true
}
