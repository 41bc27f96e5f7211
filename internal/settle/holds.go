package settle

import (
	"context"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// holds reports whether the lane of the event, which becomes a dead letter, waits for a person: retry.on_dead is hold
// and it has a lane. Its followers are parked behind the place of its dead letter. The dead letter itself
// holds the lane, wherever it is read: see store.Portion.
func (s *Settler) holds(d *Delivery) bool {
	return s.c.Retry.OnDead == config.OnDeadHold && d.Record.Key != nil && d.Record.Topic != ""
}

// local reports whether the event, which cannot be a message, is left to the loop. One that holds its lane, or that is
// none yet, goes to the sink, which rejects it in its turn: behind what is in front of it, and before what follows.
func (s *Settler) local(d *Delivery) bool {
	if d.Reason != nil && (d.Reason.Doubtful || s.holds(d)) {
		d.Record.Doomed, d.Record.Reason = true, d.Reason
		return false
	}
	return d.Reason != nil
}

// TakeDoomed takes out of ds, in place, the events that cannot be messages, and hands them to the loop. It waits
// while too many of them wait already; rest are those that it could not hand over before the context ended.
func (s *Settler) TakeDoomed(ctx context.Context, ds []*Delivery) (good, rest []*Delivery) {
	bad := 0
	for _, d := range ds {
		if s.local(d) {
			bad++
		}
	}
	if bad == 0 {
		return ds, nil
	}
	good, rest = ds[:0], make([]*Delivery, 0, bad)
	for _, d := range ds {
		if s.local(d) {
			rest = append(rest, d)
		} else {
			good = append(good, d)
		}
	}
	select {
	case s.loop.doomed <- rest:
		return good, nil
	case <-ctx.Done():
		return good, rest
	}
}

// holdLane takes in that the dead letter of a rejected event, which holds its lane, is committed, and parks what
// waits behind it in memory.
func (l *loop) holdLane(d *Delivery) {
	for _, f := range l.lanes.deadHolds(d) {
		l.parking.park(f, outbox.BlockedBy, 0, store.NotDue)
	}
}
