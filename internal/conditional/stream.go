package conditional

import (
	"context"

	"github.com/cdc-relay/cdc-relay/sink"
)

// Found is an entry that was read behind the known end.
type Found struct {
	Offset int64
	Mark   Mark
	Source string // what its header x-outbox-source says
}

// Answer is the result of an append.
type Answer struct {
	// Offsets are those of the records that are written for certain: the front of what was to be appended.
	Offsets []int64
	// Verdict is about the rest: Accepted (there is none), NotWritten, Unknown or Refused.
	Verdict sink.Verdict
	// Moved, with NotWritten, says that the log has another end than expected.
	Moved bool
	// Guilty and Reason, with Refused: the record that the broker refused, by its index in what was to be appended.
	Guilty int
	Reason *sink.Reason
	// NotWritten, Unknown: the cause; whose trouble it is if it is a [sink.Troubled], else the cluster's.
	Err   error
	Pause bool
	Code  string
}

// RefuseAt refuses record n of an append, which cannot be written. Those in front of it, if any, are appended by front,
// whose answer stands unless it is Accepted.
func RefuseAt(n int, reason *sink.Reason, front func() Answer) (a Answer) {
	if n > 0 {
		if a = front(); a.Verdict != sink.Accepted {
			return a
		}
	}
	a.Verdict, a.Guilty, a.Reason = sink.Refused, n, reason
	return a
}

// Stream asks the broker about one log. Offsets grow by any steps and are at least 0.
type Stream interface {
	// End is the offset of the last entry that the log ever had, 0 when it never had one.
	End(ctx context.Context) (int64, error)
	// Portion is the most records of one append, 0 for any number.
	Portion() int
	// Append appends the records, if the log ends at end. What it writes is a front of them, in order.
	Append(ctx context.Context, end int64, records []*sink.Record) Answer
	// Behind hands out what stands behind the end, in order, and returns the end up to which it has read. With an error
	// that is the last one that was handed out, or the one given.
	Behind(ctx context.Context, end int64, each func(Found)) (int64, error)
	// Mark is the record's mark.
	Mark(r *sink.Record) Mark
}
