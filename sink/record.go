package sink

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Result is the outcome of a record.
type Result uint8

// The results of a record. Every record that was submitted or retried gets exactly one of Published, Rejected, Held.
const (
	None      Result = iota // no result yet
	Published               // acknowledged durably by the broker at Partition, Offset
	Rejected                // definitely not written, and the reason is this record; see Reason
	Held                    // not sent: an earlier record of its lane was rejected
)

// Record is one message on its way to the broker. The submitter fills the first group and must not touch it again
// before the result; the engine fills the second group before it hands the record back by Results.
type Record struct {
	Topic string
	// nil = keyless: no lane, spread over the partitions; empty counts as a key only for drivers that have it
	Key       []byte
	Value     []byte // nil = tombstone
	Headers   outbox.Headers
	Timestamp int64 // milliseconds since the Unix epoch
	Cost      int   // bytes of memory that the record holds, counted against the window; at least its encoded size
	Owner     any   // the submitter's; the engine never looks at it
	// Source is which of several outboxes it comes from; 0: the only one. Records of different ones share no lane.
	Source int32

	Result     Result
	Partition  int32
	Offset     int64     // of a published record; -1 when the broker could not say
	Complete   int64     // of a published record: all of ours in front of this offset of the partition have results by now
	At         time.Time // when the result was known
	Generation uint64    // of the held lane, with Rejected and Held
	Reason     *Reason   // why it was rejected; nil otherwise
	// Doomed, which the submitter sets with Reason, lets the record be rejected for that when its turn comes, without
	// being sent: so it has its place in its lane's order.
	Doomed bool
	JSON   bool // the value is known to be a JSON document; the submitter sets it
	// Again, which the submitter sets, reports that a person asks for it once more, having fixed the cause of its refusal:
	// nothing that the driver learned of its topic before is a reason to refuse it unsent.
	Again bool
	// Probe, which the submitter sets, lets a record without a key pass a diversion, to show whether the trouble is over.
	Probe   bool
	WasHeld bool // with Held: the lane was held already, for an earlier record

	engine engineState // the engine's own; see engine.go
}

// Lane is the unit of ordering. A record without a key has none.
type Lane = outbox.Lane

// Lane returns the record's lane, with the record's own key.
func (r *Record) Lane() Lane { return Lane{Source: r.Source, Topic: r.Topic, Key: r.Key} }

// Reason is why a record was rejected.
type Reason struct {
	Class outbox.ErrorClass
	Code  string // the broker's name for it, such as MESSAGE_TOO_LARGE, or one of the engine's own; short, no event data
	Text  string // for people: what happened, with sizes and limits; never the payload

	// Doubtful reports that the record may not be at fault: it was refused alone, time and again, while nothing else of
	// its partition was taken, or its schema is not there. It is set aside so that this can show, and spends no attempt.
	Doubtful bool
	Pause    time.Duration // with Doubtful: not tried again before

	Stack string // for the log: where the program failed; empty unless it did
}

// Recover is deferred by what makes a record's message, and turns a panic into the reason of that record alone: the
// content of one event never ends the process. A driver defers it where nothing of the record was sent yet.
func Recover(reason **Reason) {
	if value := recover(); value != nil {
		*reason = &Reason{Class: outbox.Permanent, Code: "DRIVER_PANIC", Stack: string(debug.Stack()),
			Text: fmt.Sprintf("making the broker's message failed by a mistake in the program: %.200s; the log has the "+
				"stack: report it, and replay the event with a version that has the fix", fmt.Sprint(value))}
	}
}

// Compose calls each for the records in order, up to one for which it panics: composed are in front of that.
func Compose(records []*Record, each func(i int, r *Record)) (composed int, reason *Reason) {
	defer Recover(&reason)
	for composed = range records {
		each(composed, records[composed])
	}
	return len(records), nil
}

// Error makes a Reason usable as an error.
func (r *Reason) Error() string { return r.Code + ": " + r.Text }
