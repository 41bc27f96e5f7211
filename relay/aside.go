package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/store"
)

// asideMost bounds the events that one transaction parks, or notes failed attempts of.
const asideMost = 500

// aside is one change to the parked events that the settler wants committed. Parks of a lane are committed in the order
// in which they were wanted, because one writer commits all: a follower is never parked before what it follows.
type aside struct {
	kind     asideKind
	d        *delivery
	lane     *parkedLane
	attempts int
	in       time.Duration // until the next attempt; store.NotDue, store.WhenWell
	class    outbox.ErrorClass
	text     string
	at       uint64 // so many results of the sink had been taken in before it
}

type asideKind uint8

const (
	asidePark  asideKind = iota // store an event aside
	asideLater                  // note a failed attempt of a parked event
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

// commitAsides commits one portion: parks, or failed attempts.
func (s *settler) commitAsides(ctx context.Context, portion []*aside) error {
	if portion[0].kind == asideLater {
		failed := make([]store.Attempt, len(portion))
		for i, a := range portion {
			failed[i] = store.Attempt{ID: a.d.event.ID, Attempts: a.attempts, RetryIn: a.in, Class: a.class, Text: a.text}
		}
		return s.r.store.RetryLater(ctx, failed)
	}
	parks := make([]store.Parked, len(portion))
	for i, a := range portion {
		parks[i] = store.Parked{
			Event: &a.d.event, Topic: a.d.record.Topic, Key: a.d.record.Key,
			Class: a.class, Attempts: a.attempts, RetryIn: a.in, Text: a.text, Late: a.d.late,
		}
	}
	parked, err := s.r.store.Park(ctx, parks)
	if err == nil {
		s.term.parked.Add(parked)
	}
	return err
}

// release gives a delivery back whose outcome is committed.
func (s *settler) release(d *delivery) {
	if d.record.Result != sink.None { // else the sink never had it
		s.term.engine.Settled([]*sink.Record{&d.record})
	}
	s.term.inflight.finish([]*delivery{d})
}

// forget drops a delivery that the sink did not take; its event stays parked.
func (s *settler) forget(d *delivery) { s.term.inflight.forget([]*delivery{d}) }

// nextAsides is the next portion for the writer: notes of failed attempts, or as many parks as may be. While as many
// events are parked as may be, parks wait, and so, in the end, does the stream; nothing else waits for them, and they do
// not wait where no retry could make room.
func (s *settler) nextAsides() []*aside {
	if len(s.notes) > 0 {
		return s.notes[:min(len(s.notes), asideMost)]
	}
	if s.parkingFull() {
		return nil
	}
	return s.parks[:min(len(s.parks), asideMost)]
}

func (s *settler) parkingFull() bool {
	return s.term.parked.Load() >= int64(s.r.c.Limits.ParkedEvents) && s.term.mayRetry() != nil && !s.parking.waitsForParks()
}

// finishAsides takes in that a portion is committed.
func (s *settler) finishAsides(portion []*aside) {
	if portion[0].kind == asidePark {
		s.parks = s.parks[len(portion):]
	} else {
		s.notes = s.notes[len(portion):]
	}
	s.r.metrics.setAside.Add(uint64(len(portion)))
	for _, a := range portion {
		topic := a.d.record.Topic
		s.parking.committed(a)
		s.release(a.d)
		switch {
		case a.in >= 0:
			s.term.retrier.dueIn(a.in)
		case a.in == store.WhenWell && !s.term.troubled(topic): // well since it was wanted
			s.term.retrier.isWell(topic)
		}
	}
	clear(portion)
	s.noteAside()
	s.parking.advance()
	s.told()
}

// noteAside says up to which result of the sink everything that it gave back is parked.
func (s *settler) noteAside() {
	upTo := s.sorted
	if len(s.parks) > 0 {
		upTo = s.parks[0].at
	}
	s.term.asideUpTo.Store(upTo)
}

// describe is the last_error of a parked event.
func describe(d *delivery) string {
	if d.reason == nil {
		return ""
	}
	return fmt.Sprintf("%s: %s", d.reason.Code, d.reason.Text)
}
