package message

import (
	"strconv"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// The headers that a copy has besides those of the event. errorHeaders mark it: it is no appearance of the event.
const (
	errorHeaders     = reservedPrefix + "error-"
	errorClassHeader = errorHeaders + "class"
	maxReasonHeader  = 4 << 10 // bytes
)

// Dead is a dead letter to copy.
type Dead struct {
	Event    *outbox.Event
	Record   *sink.Record // the event's message, as far as it could be made
	Refused  bool         // it is a message, which the broker, or the sink for the topic's limits, has refused
	Reason   *sink.Reason // why the event is dead
	Attempts int
	// Refusal is why the copy with its value was refused: this one goes without. nil: with it.
	Refusal *sink.Reason
}

// Copy fills the record, all but its owner, with the message for dlq.topic: key, value and headers of the event, and
// why it is dead. A reason says that there is no topic for it.
func (x *Encoder) Copy(d Dead, rec *sink.Record) (reason *sink.Reason) {
	defer func() {
		if value := recover(); value != nil {
			reason = x.recovered(d.Event.ID, value)
		}
	}()
	if rec.Topic, reason = x.copyTopic(d); reason != nil {
		return reason
	}
	rec.Key, rec.Timestamp = d.Record.Key, time.Now().UnixMilli()
	var h outbox.Headers
	if rec.Value = d.Record.Value; d.Refused {
		h = d.Record.Headers.In(nil)
	} else { // it could not be a message, so it is taken as it is in its row
		rec.Value = d.Event.Payload
		h = x.rawHeaders(d.Event)
	}
	h.Add(errorClassHeader, []byte(d.Reason.Class))
	h.Add(errorHeaders+"code", []byte(d.Reason.Code))
	h.Add(errorHeaders+"reason", []byte(d.Reason.Text[:min(len(d.Reason.Text), maxReasonHeader)]))
	h.Add(errorHeaders+"attempts", strconv.AppendInt(nil, int64(max(d.Attempts, 1)), 10))
	h.Add(errorHeaders+"topic", []byte(d.Record.Topic))
	h.Add(errorHeaders+"dead-at", time.Now().UTC().AppendFormat(nil, time.RFC3339Nano))
	if d.Event.Oversize > 0 {
		rec.Value = []byte{} // and not null: that would be a tombstone
		h.Add(errorHeaders+"copy", []byte("without its value, which is kept in the table"))
	} else if d.Refusal != nil {
		rec.Value = []byte{} // and not null: that would be a tombstone
		h.Add(errorHeaders+"copy", []byte("without its value: "+d.Refusal.Error()))
	}
	rec.Headers = h
	rec.Cost = Cost(len(rec.Key) + len(rec.Value) + len(h.Block()))
	return nil
}

// rawHeaders are the headers of an event that cannot be a message, with its row's own as far as they are any.
func (x *Encoder) rawHeaders(e *outbox.Event) outbox.Headers {
	var h outbox.Headers
	_, err := outbox.ParseTimestamp(e.CreatedAt)
	x.columnHeaders(&h, e, err == nil)
	own := h
	if e.Headers != nil && x.rowHeaders(&own, e.Headers) == nil {
		h = own
	}
	h.Add("x-outbox-position", []byte(e.Position.String()))
	h.Add(sourceHeader, x.source)
	h.Add("x-outbox-epoch", x.epoch)
	return h
}
