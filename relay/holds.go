package relay

import (
	"context"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/store"
)

// holds says that the lane of the event, which is to die, waits for a person: retry.on_dead is hold and it has a lane. Its
// followers are parked behind the place of its dead letter. The dead letter itself is what holds the lane, wherever it is read:
// see store.Portion.
func (r *Relay) holds(d *delivery) bool {
	return r.c.Retry.OnDead == config.OnDeadHold && d.record.Key != nil && d.record.Topic != ""
}

// local says that the event, which cannot be a message, is left to the settler. One that holds its lane goes to the sink,
// which rejects it in its turn: behind what is in front of it in its lane, and before what follows.
func (s *settler) local(d *delivery) bool {
	if d.reason != nil && s.r.holds(d) {
		d.record.Doomed, d.record.Reason = true, d.reason
		return false
	}
	return d.reason != nil
}

// divert takes out of ds, in place, the events that cannot be messages, and hands them to the settler. It waits while too
// many of them wait already; rest are those that it could not hand over before the context ended.
func (s *settler) divert(ctx context.Context, ds []*delivery) (good, rest []*delivery) {
	bad := 0
	for _, d := range ds {
		if s.local(d) {
			bad++
		}
	}
	if bad == 0 {
		return ds, nil
	}
	good, rest = ds[:0], make([]*delivery, 0, bad)
	for _, d := range ds {
		if s.local(d) {
			rest = append(rest, d)
		} else {
			good = append(good, d)
		}
	}
	select {
	case s.locals <- rest:
		return good, nil
	case <-ctx.Done():
		return good, rest
	}
}

// holdLane takes in that the dead letter of a rejected event, which holds its lane, is committed, and parks what waits
// behind it in memory.
func (s *settler) holdLane(d *delivery) {
	for _, f := range s.lanes.buriedForGood(d) {
		s.parking.park(f, outbox.BlockedBy, 0, store.NotDue)
	}
}
