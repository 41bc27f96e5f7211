package record

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// BreakerState is dlq.breaker's state across restarts.
type BreakerState struct {
	Open bool   // it was opened and no one closed it
	Said string // why
	// Within the window, as far as a glance tells: dead letters that are open, those apart that a person has let pass, and
	// events that were journaled.
	Dead, Published int64
}

// Pause says since when the relay takes nothing in, and who wanted that.
type Pause struct {
	Since time.Time `json:"since"`
	By    string    `json:"by"`
	Note  string    `json:"note,omitempty"`
}

// Cleanable is how many rows could go now, at most.
type Cleanable struct{ Outbox, Journal, Dead int64 }

// The kinds of requests.
const (
	RequestReplay  = "replay"  // publish dead letters after all
	RequestDiscard = "discard" // close dead letters permanently
	RequestRetry   = "retry"   // try parked events at once
	RequestPause   = "pause"   // take nothing in
	RequestResume  = "resume"
	// RequestReconcile checks the whole table: total counts rows unrecorded at first sight, done those that were
	// missed.
	RequestReconcile = "reconcile"
	// RequestRepublish publishes once more what the journal knows and the topics have lost; it names ids.
	RequestRepublish = "republish"
)

// TokenPrefix marks the relay's own logical messages in the WAL.
const TokenPrefix = "cdc-relay"

// askedToken is followed by the name of the slot.
const askedToken = "asked/"

// AskedToken is the message that is committed with a request to the relay of the slot.
func AskedToken(slot string) string { return askedToken + slot }

// Request is a person's request to the relay that holds the slot. Names in JSON are stable.
type Request struct {
	ID          int64      `json:"id"`
	Kind        string     `json:"kind"`
	Filter      Filter     `json:"filter"`
	Who         string     `json:"who"`
	Note        string     `json:"note,omitempty"`
	RequestedAt time.Time  `json:"requested_at"`
	StartedAt   *time.Time `json:"started_at"`
	FinishedAt  *time.Time `json:"finished_at"`
	Total       *int64     `json:"total"` // what it concerned when it was started
	Done        int64      `json:"done"`
	Waiting     int64      `json:"waiting"` // replayed events that are not published yet and have not died again
	Error       string     `json:"error,omitempty"`
	Outcomes    []Outcome  `json:"outcomes,omitempty"` // of a replay, where it was asked for

	Unreadable error `json:"-"` // its filter is not one of this version
}

// What became of an event that a replay concerned.
const (
	OutcomePublished = "published"
	OutcomeParked    = "parked"
	OutcomeDied      = "died again"
	OutcomeBehind    = "stayed behind" // not sent: an earlier one of its key, replayed with it, died again
	OutcomeDiscarded = "discarded"     // after it died again, or stayed behind
)

// Outcome counts the events of a replay that share state, topic and code. An event that a later
// replay took counts there. Names in JSON are stable.
type Outcome struct {
	State  string `json:"state"`
	Topic  string `json:"topic,omitempty"`  // of what was not published
	Code   string `json:"code,omitempty"`   // why it died, or the class of the error for which it is parked
	Reason string `json:"reason,omitempty"` // of one of them
	Events int64  `json:"events"`
}

// Came is how many events came to the state.
func (r *Request) Came(state string) (n int64) {
	for _, o := range r.Outcomes {
		if o.State == state {
			n += o.Events
		}
	}
	return n
}

// ErrCannot reports that a request can do nothing, or nothing more, and why: it is finished with that.
var ErrCannot = errors.New("this cannot be done")

// ErrNoRequest reports that there is no request with the number.
var ErrNoRequest = errors.New("no request has this number")

// DeadCursor is how far a request has gone through the dead letters; the zero value is the beginning. It saves looking
// at the same rows again and nothing else: a request that is begun again does what is left.
type DeadCursor struct {
	Set      bool // false: the beginning
	Position outbox.Position
	ID       int64 // of the row
}

// MarshalText makes a text of the cursor that no one else reads.
func (c DeadCursor) MarshalText() ([]byte, error) {
	p := c.Position
	return fmt.Appendf(nil, "%d.%t.%d.%d.%d", p.Epoch, p.Table, p.Order, p.Index, c.ID), nil
}

// UnmarshalText reads what MarshalText made. [ErrCursor]: it is something else.
func (c *DeadCursor) UnmarshalText(text []byte) error {
	parts := strings.Split(string(text), ".")
	if len(parts) != 5 {
		return ErrCursor
	}
	epoch, err1 := strconv.ParseInt(parts[0], 10, 64)
	table, err2 := strconv.ParseBool(parts[1])
	order, err3 := strconv.ParseUint(parts[2], 10, 63)
	index, err4 := strconv.ParseUint(parts[3], 10, 32)
	id, err5 := strconv.ParseInt(parts[4], 10, 64)
	if errors.Join(err1, err2, err3, err4, err5) != nil {
		return ErrCursor
	}
	*c = DeadCursor{Set: true, ID: id, Position: outbox.Position{Epoch: epoch, Table: table, Order: order,
		Index: uint32(index)}}
	return nil
}

// Step is the result of one portion of a request.
type Step struct {
	Seen   int   // dead letters taken; 0: there are no more
	Parked int64 // of a replay: events that are parked now
	Lanes  []Lane
	Next   DeadCursor
}
