package record

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// When a parked event is due. Other values of RetryIn are pauses from now, by the database's clock.
const (
	// NotDue is for an event behind another one of its lane: it moves when that one has moved.
	NotDue time.Duration = -1
	// WhenWell is for an event that waits for its topic or partition: it is due when MakeDue says so.
	WhenWell time.Duration = -2
)

// Parked is an event stored aside for a later attempt, with all that the attempt needs: it does not depend on the
// outbox row.
type Parked struct {
	Event    *outbox.Event
	Topic    string // as it was routed
	Key      []byte // as it was routed; nil = none: a lane of its own
	Class    outbox.ErrorClass
	Attempts int           // spent so far
	RetryIn  time.Duration // or NotDue, WhenWell
	Text     string        // the last error, for people
	Late     bool          // the stream had not delivered it in its place
	Reused   bool          // see [CatchUpRow]
	Listed   bool          // see [CatchUpRow]

	Committed int64 // of an event of the stream: see [Sighting]; 0: unknown
}

// Lane names the events that keep an order among them.
type Lane = outbox.Lane

// ParkedRow is a parked event as it was stored.
type ParkedRow struct {
	Event    outbox.Event
	Attempts int
	Due      bool // its own time has come, or it has none
	Late     bool
	Replay   bool // it was a dead letter
}

// Ask is a lane to read from.
type Ask struct {
	Lane  Lane
	After *outbox.Position // only what is behind it; nil: from the beginning
}

// Portion is the beginning of what was asked for of a lane's queue, or of a topic without a key what is due.
type Portion struct {
	Lane Lane
	Rows []ParkedRow
	More bool // there may be more behind these
	Held bool // it is empty, and a dead letter holds the lane
}

// Attempt is one that a parked event has failed.
type Attempt struct {
	Source   int32         // of the event
	ID       []byte        // of the event, in text form
	Attempts int           // spent so far
	RetryIn  time.Duration // or NotDue, WhenWell
	Class    outbox.ErrorClass
	Text     string // for people
}

// Published is one event that the broker acknowledged.
type Published struct {
	Source    int32  // of the event
	ID        []byte // text form, as pgoutput gives it
	Topic     string
	Partition int32
	Offset    int64 // -1 when the broker could not say
	Mark      int32 // [outbox.Position.Mark] or RowMark; 0: it was read from the table
}

// Identity returns the event's identity, with a copy of its id.
func (p *Published) Identity() outbox.Identity {
	return outbox.Identity{Source: p.Source, ID: string(p.ID)}
}

// Dead is one event that was given up, with what a person needs to judge it and to publish it again.
type Dead struct {
	Event     *outbox.Event
	Topic     string // as it was routed
	Key       []byte // as it was routed; nil = none
	Partition int32  // -1 = it had none
	Attempts  int
	Class     outbox.ErrorClass
	Code      string // short, no event data
	Text      string // for people
	Holds     bool   // its lane waits until it is replayed or discarded; only of an event with a key
	Stops     bool   // dead letters that are replayed behind it in its lane stay what they were; only of a replay
	Committed int64  // of an event of the stream: see [Sighting]; 0: unknown
}
