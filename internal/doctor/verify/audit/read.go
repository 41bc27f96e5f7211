package audit

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/doctor/verify"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// stored is a record as a topic holds it.
type stored = sink.Stored

// readPartition hands the records of one partition, from where the last portion ended to the end that was found, to the
// auditor.
func (r *topicReader) readPartition(ctx context.Context, p *partitionEnd, t *truth, seen *atomic.Int64) error {
	return r.read(ctx, p, func(s stored) error {
		seen.Add(1)
		record, ours := r.record(p, s)
		if !ours {
			return nil
		}
		if record.ID == "" && hasHeader(s, sourceHeader) {
			p.nameless.add(s.Offset)
		}
		t.pending.seen(&record)
		return t.auditor.Record(record)
	})
}

// sourceHeader says which relay's table a record is from.
const sourceHeader = "x-outbox-source"

func hasHeader(s stored, name string) bool {
	for has := range s.Headers {
		if has == name {
			return true
		}
	}
	return false
}

// record takes from a record what the judge needs; false for one of another relay.
func (r *topicReader) record(p *partitionEnd, s stored) (verify.Record, bool) {
	record := verify.Record{Topic: p.topic, Partition: int32(p.partition), Offset: s.Offset, Key: s.Key,
		Value: verify.DigestOf(payloadOf(r.cfg.Message.Format, r.payload, s.Value))}
	for name, value := range s.Headers {
		switch name {
		case r.idHeader:
			record.ID = string(value)
		case r.madeHeader:
			if at, err := time.Parse(time.RFC3339Nano, string(value)); err == nil {
				record.Made = verify.MadeAt(at.UnixMicro())
			}
		case "x-outbox-late", "x-outbox-replay":
			record.Late = true
		case sourceHeader:
			if len(r.sources) > 0 && !slices.ContainsFunc(r.sources, func(source string) bool {
				return outbox.SameSource(string(value), source)
			}) {
				return record, false
			}
		}
	}
	return record, true
}
