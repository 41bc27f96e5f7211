package relay

import (
	"context"
	"slices"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/store"
)

// gravesMost bounds the events that were let die and are not written yet: what the table refuses is no flood.
const gravesMost = 16

// die makes the event a dead letter; its followers wait, in memory, for the moment that this takes. It has no parked
// events in front of it: of a lane with parked events the sink holds all but what was retried.
func (s *settler) die(d *delivery) {
	s.lanes.rejected(d)
	s.dying = append(s.dying, d)
}

// bury takes events that are to die as far as may be: past the breaker, to dlq.topic, and to the writer of dead letters.
func (s *settler) bury() {
	for len(s.dying) > 0 && len(s.graves) < gravesMost && s.copies.mayAdd() && s.term.breaker.mayDie(s.dying[0]) {
		d := s.dying[0]
		s.dying = s.dying[1:]
		if s.copies.topic == "" {
			s.graves = append(s.graves, d)
		} else {
			s.copies.add(d)
		}
	}
	s.copies.send()
}

// reconsider does what the breaker says about the events that wait for their deaths: it tries one, or all, again. What the
// sink has not refused cannot be a message, whatever the broker takes.
func (s *settler) reconsider(w breakerWord) {
	if w.probe {
		i := slices.IndexFunc(s.dying, (*delivery).refused)
		if i < 0 {
			return
		}
		if d := s.dying[i]; s.tryAgain(d) {
			d.dying().probe = true
			s.dying = slices.Delete(s.dying, i, i+1)
		}
		return
	}
	waiting := s.dying
	s.dying = nil
	for _, d := range waiting {
		d.dying().pardoned = w.pardon
		if !d.refused() || !s.tryAgain(d) {
			s.dying = append(s.dying, d)
		}
	}
}

// tryAgain hands a refused event to the sink once more; false: it does not take it now.
func (s *settler) tryAgain(d *delivery) bool {
	engine, rec := s.term.engine, &d.record
	if rec.Key == nil {
		engine.Settled([]*sink.Record{rec})
		if engine.Insert(rec) != nil {
			rec.Result = sink.None // it is not with the sink any more
			return false
		}
	} else if engine.Retry(rec.Topic, rec.Key, engine.Hold(rec.Topic, rec.Key), []*sink.Record{rec}) != nil {
		return false
	}
	if d.parked {
		s.parking.takenBack(d)
	} else {
		s.lanes.takenBack(d)
	}
	return true
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
		Attempts: max(d.attempts, 1), Class: d.reason.Class, Code: d.reason.Code, Text: d.reason.Text, Holds: s.r.holds(d),
	}
	if d.refused() {
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
	s.r.health.died(d.record.Topic, d.reason)
	s.r.log.Warn().Str("topic", d.record.Topic).Str("code", d.reason.Code).Str("position", d.event.Position.String()).
		Int("attempts", max(d.attempts, 1)).Str("reason", d.reason.Text).Msg("an event is dead; it was stored as a dead letter")
	switch {
	case d.parked:
		s.parking.buried(d)
	case s.r.holds(d):
		s.holdLane(d)
	case d.record.Result == sink.Rejected:
		s.lanes.buried(d)
	}
	s.release(d)
	s.lanes.advance()
	s.parking.advance()
	s.told()
}
