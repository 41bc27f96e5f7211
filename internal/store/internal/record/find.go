package record

import "time"

// What is known of an event; the first that holds.
const (
	FoundPublished = "published" // the journal has its place in a topic
	FoundBaseline  = "baseline"  // it was published before the relay's time, by the row's own word
	FoundParked    = "parked"
	FoundDiscarded = "discarded" // a dead letter that a person closed
	FoundDead      = "dead"
	FoundInFlight  = "in_flight" // with the sink: only a running relay knows
	FoundMarked    = "marked"    // the row says that it is published, the journal does not (any more)
	FoundWaiting   = "waiting"   // the row is committed, and nothing is recorded of it
	FoundNothing   = "unknown"   // neither a row nor a record
)

// Found describes one event by the database. Names in JSON are stable; null means absent.
type Found struct {
	ID        string          `json:"id"`
	Outbox    string          `json:"outbox,omitempty"` // schema.table, where a slot has several
	State     string          `json:"state"`
	Says      string          `json:"says"` // the state in a sentence
	Do        string          `json:"do"`   // what to do about it; empty: nothing
	Row       *FoundRow       `json:"row"`
	Published *FoundPlace     `json:"published"`
	Parked    *FoundParking   `json:"parked"`
	Dead      *FoundDeath     `json:"dead"`
	InFlight  *FoundInTransit `json:"in_flight"`
}

// FoundRow is its row in the outbox.
type FoundRow struct {
	AggregateType *string `json:"aggregate_type"`
	AggregateID   *string `json:"aggregate_id"`
	EventType     *string `json:"event_type"`
	CreatedAt     *string `json:"created_at"` // as Postgres writes it: it may be infinity
	Marked        bool    `json:"marked"`     // the row says that it is published
}

// FoundPlace is where it is. Topic is empty, and Partition and Offset are null, where the journal does not say it.
type FoundPlace struct {
	Topic     string    `json:"topic"`
	Partition *int32    `json:"partition"`
	Offset    *int64    `json:"offset"`
	At        time.Time `json:"at"` // when it was journaled
	// Former: the row was made later; another event that had its id before was published.
	Former bool `json:"former,omitempty"`
}

// FoundParking is why it waits.
type FoundParking struct {
	Topic         string     `json:"topic"`
	AggregateType *string    `json:"aggregate_type"`
	AggregateID   *string    `json:"aggregate_id"`
	EventType     *string    `json:"event_type"`
	Attempts      int        `json:"attempts"`
	Class         string     `json:"class"`
	LastError     string     `json:"last_error"`
	LastErrorAt   *time.Time `json:"last_error_at"`
	ParkedAt      time.Time  `json:"parked_at"`
	NextRetryAt   *time.Time `json:"next_retry_at"` // null: behind another event, or until its topic is well
	Waits         bool       `json:"waits"`         // for its topic or partition
	Replay        bool       `json:"replay"`        // it was a dead letter
	Behind        *string    `json:"behind"`        // the first parked event of its key, if that is another one
	Before        int64      `json:"before"`        // parked events of its key in front of it
}

// FoundDeath is why it was given up.
type FoundDeath struct {
	Topic         string     `json:"topic"`
	AggregateType *string    `json:"aggregate_type"`
	AggregateID   *string    `json:"aggregate_id"`
	EventType     *string    `json:"event_type"`
	Attempts      int        `json:"attempts"`
	Class         string     `json:"class"`
	Code          string     `json:"code"`
	LastError     string     `json:"last_error"`
	DeadAt        time.Time  `json:"dead_at"`
	ReplayedAt    *time.Time `json:"replayed_at"`
	DiscardedAt   *time.Time `json:"discarded_at"`
	ResolvedBy    *string    `json:"resolved_by"`
	Note          *string    `json:"note"`
	EditedAt      *time.Time `json:"edited_at"` // what it sends is not what its outbox row says
	EditedBy      *string    `json:"edited_by"`
}

// FoundInTransit is where a relay has it: read from the stream, or from the table, and not recorded yet.
type FoundInTransit struct {
	Topic string    `json:"topic"`
	Since time.Time `json:"since"` // when it was read
}
