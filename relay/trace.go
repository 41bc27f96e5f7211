package relay

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/settle"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Tracer receives the outcome of each attempt to publish an event, from one goroutine, in the order of the sink's
// results. It must not block.
type Tracer interface {
	Attempted(a Attempt)
}

// Attempt is one attempt to publish an event. The tracer must not keep Record or ID: both are reused.
type Attempt struct {
	Record   *sink.Record // its Result is Published or Rejected
	ID       []byte
	Position outbox.Position
	Received time.Time // from the WAL, or read from the table
	Number   int       // of this attempt, from 1
}

// trace tells the tracer, if there is one. Copies of dead letters are not events.
func (r *Relay) trace(records []*sink.Record) {
	if r.tracer == nil {
		return
	}
	for _, rec := range records {
		d := rec.Owner.(*settle.Delivery)
		if rec.Result == sink.Held || d.IsCopy() {
			continue
		}
		r.tracer.Attempted(Attempt{
			Record: rec, ID: d.Event.ID, Position: d.Event.Position,
			Received: settle.Start.Add(d.Received), Number: d.Attempts + 1,
		})
	}
}
