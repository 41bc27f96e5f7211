package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/store"
)

// asideMost bounds the events that one transaction parks.
const asideMost = 500

// aside is one change to the parked events that the settler wants committed. The changes of a lane are committed in the
// order in which they were wanted, because one writer commits all: a follower is never parked before what it follows.
type aside struct {
	kind     asideKind
	d        *delivery
	lane     *parkedLane
	attempts int
	in       time.Duration // until the next attempt; store.NotDue, store.WhenWell
	class    outbox.ErrorClass
	text     string
}

type asideKind uint8

const (
	asidePark   asideKind = iota // store an event aside
	asideLater                   // note a failed attempt of a parked event
	asideGiveUp                  // turn a parked event into a dead letter
)

// writeAsides commits what the settler hands over, portion by portion.
func (s *settler) writeAsides(ctx context.Context) {
	for {
		var portion []*aside
		select {
		case portion = <-s.asides:
		case <-ctx.Done():
			return
		}
		if !s.insist(ctx, "parked", func() error { return s.commitAsides(ctx, portion) }) {
			return
		}
		select {
		case s.asided <- portion:
		case <-ctx.Done():
			return
		}
	}
}

// commitAsides commits one portion: parks, or a single change of another kind.
func (s *settler) commitAsides(ctx context.Context, portion []*aside) error {
	switch a := portion[0]; a.kind {
	case asideLater:
		return s.r.store.RetryLater(ctx, a.d.event.ID, a.attempts, a.in, a.class, a.text)
	case asideGiveUp:
		return s.r.store.GiveUp(ctx, store.Dead{
			Event: &a.d.event, Topic: a.d.record.Topic, Key: a.d.record.Key, Partition: a.d.record.Partition,
			Attempts: a.attempts, Class: a.d.reason.Class, Code: a.d.reason.Code, Text: a.d.reason.Text,
		})
	}
	parks := make([]store.Parked, len(portion))
	for i, a := range portion {
		parks[i] = store.Parked{
			Event: &a.d.event, Topic: a.d.record.Topic, Key: a.d.record.Key,
			Class: a.class, Attempts: a.attempts, RetryIn: a.in, Text: a.text,
		}
	}
	return s.r.store.Park(ctx, parks)
}

// release gives a delivery back whose outcome is committed.
func (s *settler) release(d *delivery) {
	if d.record.Result != sink.None { // else the sink never had it
		s.r.engine.Settled([]*sink.Record{&d.record})
	}
	s.r.inflight.finish([]*delivery{d})
}

// forget drops a delivery that the sink did not take; its event stays parked.
func (s *settler) forget(d *delivery) { s.r.inflight.forget([]*delivery{d}) }

// nextAsides is the next portion for the writer: as many parks as there are at the front, or one other change. While as
// many events are parked as may be, parks wait, and so, in the end, does the stream.
func (s *settler) nextAsides() []*aside {
	if len(s.wanted) == 0 {
		return nil
	}
	if s.wanted[0].kind != asidePark {
		return s.wanted[:1]
	}
	if s.r.parked.Load() >= int64(s.r.c.Limits.ParkedEvents) {
		return nil
	}
	n := 0
	for n < len(s.wanted) && n < asideMost && s.wanted[n].kind == asidePark {
		n++
	}
	return s.wanted[:n]
}

// finishAsides takes in that a portion is committed.
func (s *settler) finishAsides(portion []*aside) {
	for _, a := range portion {
		switch a.kind {
		case asidePark:
			s.r.parked.Add(1)
		case asideGiveUp:
			s.r.parked.Add(-1)
			s.r.metrics.dead(a.d.reason.Class)
			s.r.log.Warn().Str("topic", a.d.record.Topic).Str("code", a.d.reason.Code).Str("position", a.d.event.Position.String()).
				Int("attempts", a.attempts).Str("reason", a.d.reason.Text).Msg("an event is dead; it was stored as a dead letter")
		}
		s.parking.committed(a)
		s.release(a.d)
	}
	s.parking.advance()
	s.told()
}

// giveUp turns a parked event into a dead letter.
func (s *settler) giveUp(d *delivery, la *parkedLane, attempts int) *aside {
	return &aside{kind: asideGiveUp, d: d, lane: la, attempts: attempts}
}

// describe is the last_error of a parked event.
func describe(d *delivery) string {
	if d.reason == nil {
		return ""
	}
	return fmt.Sprintf("%s: %s", d.reason.Code, d.reason.Text)
}
