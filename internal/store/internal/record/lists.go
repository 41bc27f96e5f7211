package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// What may have become of a dead letter.
const (
	DeadOpen      = "open" // nothing yet; on its way included
	DeadReplayed  = "replayed"
	DeadDiscarded = "discarded"
	DeadAny       = "all"
)

// DeadStates are all of them.
var DeadStates = []string{DeadOpen, DeadReplayed, DeadDiscarded, DeadAny}

// DeadLetter is an event that was given up, as people see it. Names in JSON are stable.
type DeadLetter struct {
	ID            string     `json:"id"`               // of the event
	Outbox        string     `json:"outbox,omitempty"` // schema.table, where a slot has several
	Topic         string     `json:"topic"`
	Partition     *int32     `json:"partition"`
	Key           *string    `json:"key"` // bytes that are not UTF-8 are shown as \x and hex digits
	EventType     *string    `json:"event_type"`
	AggregateType *string    `json:"aggregate_type"`
	AggregateID   *string    `json:"aggregate_id"`
	Position      string     `json:"position"`
	Attempts      int        `json:"attempts"`
	Class         string     `json:"class"`
	Code          string     `json:"code"`
	LastError     string     `json:"last_error"`
	CreatedAt     *time.Time `json:"created_at"` // nil also where RFC 3339 cannot say it: infinity, BC, the year 10000
	DeadAt        time.Time  `json:"dead_at"`
	Replaying     bool       `json:"replaying"` // parked again, on its way to its topic
	ReplayedAt    *time.Time `json:"replayed_at"`
	DiscardedAt   *time.Time `json:"discarded_at"`
	Hands

	Number int64 `json:"-"` // of the row, for cursors
	Source int32 `json:"-"`
}

// Hands are those of the people who did something about a dead letter.
type Hands struct {
	ResolvedBy *string    `json:"resolved_by"`
	Note       *string    `json:"note"`
	EditedAt   *time.Time `json:"edited_at"` // the last time: what it sends is not what its outbox row says
	EditedBy   *string    `json:"edited_by"`
}

// DeadLetterWhole is a dead letter with what it would send.
type DeadLetterWhole struct {
	DeadLetter
	Payload []byte `json:"-"` // nil: SQL NULL
	Headers []byte `json:"-"` // JSON, or nil
	Edits   []Edited
}

// Page is a part of a list. Next is the cursor of the following part, empty at the end.
type Page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next"`
}

// DeadReason is a class and code for which dead letters died. Names in JSON are stable.
type DeadReason struct {
	Class     string    `json:"class"`
	Code      string    `json:"code"`
	Count     int64     `json:"count"`
	Oldest    time.Time `json:"oldest"`
	Newest    time.Time `json:"newest"`
	LastError string    `json:"last_error"` // of the newest
}

// ErrCursor reports that a cursor is not one that a list gave.
var ErrCursor = errors.New("the cursor did not come from this list")

// ErrNoDeadLetter reports that no dead letter has the event's id.
var ErrNoDeadLetter = errors.New("no dead letter has this event id")

// MarshalJSON shows the payload as the JSON that it is, or else as text or base64, and says which.
func (d DeadLetterWhole) MarshalJSON() ([]byte, error) {
	type shown struct {
		DeadLetter
		Payload  any             `json:"payload"`
		Encoding string          `json:"payload_encoding"` // json, text, base64; null: there is none
		Headers  json.RawMessage `json:"headers"`
		Edits    []Edited        `json:"edits,omitempty"` // the newest first
	}
	s := shown{DeadLetter: d.DeadLetter, Headers: d.Headers, Edits: d.Edits}
	if !json.Valid(d.Headers) {
		s.Headers = nil
	}
	s.Payload, s.Encoding = ShownPayload(d.Payload)
	return json.Marshal(s)
}

// ParkedKey is a key with parked events, told by the first of them, or one parked event without a key. Names in JSON
// are stable.
type ParkedKey struct {
	Outbox        string     `json:"outbox,omitempty"` // schema.table, where a slot has several
	Topic         string     `json:"topic"`
	Key           *string    `json:"key"` // bytes that are not UTF-8 are shown as \x and hex digits
	Events        int64      `json:"events"`
	ID            string     `json:"id"`
	EventType     *string    `json:"event_type"`
	AggregateType *string    `json:"aggregate_type"`
	Position      string     `json:"position"`
	Attempts      int        `json:"attempts"`
	Class         string     `json:"class"`
	LastError     string     `json:"last_error"`
	LastErrorAt   *time.Time `json:"last_error_at"`
	ParkedAt      time.Time  `json:"parked_at"`
	NextRetryAt   *time.Time `json:"next_retry_at"` // null: when its topic or partition is well
	Replay        bool       `json:"replay"`        // it was a dead letter
	Waits         bool       `json:"waits"`         // for its topic or partition
}

// ParkedSum counts parked events by what they wait for. Names in JSON are stable.
type ParkedSum struct {
	Matching int64    `json:"matching"`          // all that the filter chooses
	Troubled int64    `json:"waiting_for_topic"` // until their topic or partition is well: it is looked at all the time
	Behind   int64    `json:"behind_others"`     // of their key: parked in front of them, or dead and held
	Due      int64    `json:"due"`               // already
	Topics   []string `json:"topics_in_trouble"` // of Troubled, the first in the alphabet
}

// WaitingTopic is a topic that parked events wait for.
type WaitingTopic struct {
	Topic string
	Why   string // what one of them was parked for, as its last_error has it
}

// WhyNotDue says what parked events wait for that no request can change.
func (p ParkedSum) WhyNotDue() string {
	var parts []string
	if p.Troubled > 0 {
		parts = append(parts, fmt.Sprintf("%d wait until their topic or partition recovers, which is checked continuously "+
			"(%s; cdc-relay check may show the problem)", p.Troubled, strings.Join(p.Topics, ", ")))
	}
	if p.Behind > 0 {
		parts = append(parts, fmt.Sprintf("%d wait behind others of their keys", p.Behind))
	}
	if p.Due > 0 {
		parts = append(parts, fmt.Sprintf("%d are due already", p.Due))
	}
	return strings.Join(parts, ", ")
}
