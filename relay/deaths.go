package relay

import (
	"context"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/store"
)

// die makes the event a dead letter; its followers wait, in memory, for the moment that this takes. It has no parked
// events in front of it: of a lane with parked events the sink holds all but what was retried.
func (s *settler) die(d *delivery) {
	s.lanes.rejected(d)
	s.dying = append(s.dying, d)
}

// writeDeaths commits dead letters one by one, in order.
func (s *settler) writeDeaths(ctx context.Context) {
	for {
		var d *delivery
		select {
		case d = <-s.deaths:
		case <-ctx.Done():
			return
		}
		if !s.insist(ctx, "dead_letter", func() error { return s.commitDeath(ctx, d) }) {
			return
		}
		select {
		case s.buried <- d:
		case <-ctx.Done():
			return
		}
	}
}

func (s *settler) commitDeath(ctx context.Context, d *delivery) error {
	dead := store.Dead{
		Event: &d.event, Topic: d.record.Topic, Key: d.record.Key, Partition: -1,
		Attempts: max(d.attempts, 1), Class: d.reason.Class, Code: d.reason.Code, Text: d.reason.Text,
	}
	if d.record.Result == sink.Rejected { // else the sink never saw it
		dead.Partition = d.record.Partition
	}
	if d.parked {
		return s.r.store.GiveUp(ctx, dead)
	}
	return s.r.store.Settle(ctx, nil, []store.Dead{dead})
}

// finishDeath takes in that a dead letter is committed.
func (s *settler) finishDeath(d *delivery) {
	s.r.metrics.dead(d.reason.Class)
	s.r.log.Warn().Str("topic", d.record.Topic).Str("code", d.reason.Code).Str("position", d.event.Position.String()).
		Int("attempts", max(d.attempts, 1)).Str("reason", d.reason.Text).Msg("an event is dead; it was stored as a dead letter")
	switch {
	case d.parked:
		s.parking.buried(d)
	case d.record.Result == sink.Rejected:
		s.lanes.buried(d)
	}
	s.release(d)
	s.lanes.advance()
	s.parking.advance()
	s.told()
}
