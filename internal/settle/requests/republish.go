package requests

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// republishPortion is how many rows one transaction takes out of the journal and parks.
const republishPortion = 200

// republishPlaces is how many rows one request can name: their places in the queue order are told apart by its number.
const republishPlaces = 1 << 20

// republish parks the next rows of a request about what the topics have lost: they are in the journal, and go from
// there to the parked events. Among themselves they have the table's order (behind those that are done: rows may be
// deleted in the meantime), before whatever of this era is parked of their lanes. What their lanes have in the topic by
// now stays in front of them: they are late, and x-outbox-replay says so.
func (e *Executor) republish(ctx context.Context, s Session, request *store.Request) (more bool, err error) {
	if s.Passed() == 0 {
		return false, nil // a start may still read the topics back, and a catch-up begin another era
	}
	most, full := e.portion(republishPortion)
	if most <= 0 {
		return false, nil // until some of what is parked is published
	}
	rows, err := e.tables.RepublishRows(ctx, request, most)
	if err != nil {
		return false, err
	}
	if len(rows) == 0 {
		return true, e.finish(ctx, request, "")
	}
	router, err := e.routerOf(ctx, s, request.Filter.Source)
	if err != nil {
		return false, err
	}
	now, era := time.Now(), s.Era(request.Filter.Source)
	events := make([]store.Parked, len(rows))
	for i := range rows {
		event := &rows[i].Event
		event.Position = outbox.Position{Epoch: era, Table: true, Order: placeOf(request, i)}
		// A row that cannot be a message any more is parked all the same: when its turn comes it is given up with its
		// reason.
		topic, key := router.Route(event, now)
		events[i] = store.Parked{
			Event: event, Topic: topic, Key: key, Class: outbox.Transient,
			Text: "the topic has lost it; it is published once more",
		}
	}
	parked, err := e.tables.Republish(ctx, request, events)
	if err != nil {
		return false, err
	}
	e.queue.AddParked(parked)
	e.queue.DueNow()
	return !full, nil
}

// placeOf is the place in the queue order of the request's i-th row from now.
func placeOf(request *store.Request, i int) uint64 {
	return uint64(request.ID)*republishPlaces + uint64(request.Done) + uint64(i)
}

// routerOf is the executor's own router of an outbox in the session.
func (e *Executor) routerOf(ctx context.Context, s Session, of int32) (router Router, err error) {
	if e.router == nil || e.routed != s || e.routes != of {
		if e.router, err = e.host.Router(ctx, of); err != nil {
			e.router = nil
			return nil, err
		}
		e.routed, e.routes = s, of
	}
	return e.router, nil
}
