package settle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// parksMost bounds the events that one transaction parks, or notes failed attempts of.
const parksMost = 500

// parkChange is one change to the parked events that the loop wants committed. Parks of a lane are committed in the
// order in which they were wanted, because one writer commits all: a follower is never parked before what it follows.
type parkChange struct {
	kind     parkKind
	d        *Delivery
	lane     *parkedLane
	attempts int
	in       time.Duration // until the next attempt; store.NotDue, store.WhenWell
	class    outbox.ErrorClass
	text     string
	at       uint64 // so many results of the sink had been taken in before it
	refused  bool   // the table does not take it: a dead letter, with the delivery's reason
}

// parks are the changes to the parked events that are not committed. They belong to the loop's goroutine.
type parks struct {
	toWrite chan []*parkChange
	written chan []*parkChange // committed

	wanted  []*parkChange // events that are to be parked, in order
	notes   []*parkChange // failed attempts of parked events that are to be noted
	writing bool          // a portion of either is with the writer

	refusals refusals // of events
}

type parkKind uint8

const (
	parkEvent parkKind = iota // store an event
	parkLater                 // note a failed attempt of a parked event
)

// writeParks commits what the loop hands over, portion by portion.
func (l *loop) writeParks(ctx context.Context) {
	for {
		var portion []*parkChange
		select {
		case portion = <-l.parks.toWrite:
		case <-ctx.Done():
			return
		}
		if !l.insist(ctx, "parked", func() error { return l.commitParks(ctx, portion) }) {
			return
		}
		select {
		case l.parks.written <- portion:
		case <-ctx.Done():
			return
		}
	}
}

// commitParks commits one portion: parks, or failed attempts.
func (l *loop) commitParks(ctx context.Context, portion []*parkChange) error {
	if portion[0].kind == parkLater {
		failed := make([]store.Attempt, len(portion))
		for i, a := range portion {
			failed[i] = store.Attempt{Source: a.d.Event.Source, ID: a.d.Event.ID, Attempts: a.attempts, RetryIn: a.in,
				Class: a.class, Text: a.text}
		}
		return l.settler.tables.RetryLater(ctx, failed)
	}
	parks := make([]store.Parked, len(portion))
	for i, a := range portion {
		a.refused = false
		parks[i] = store.Parked{
			Event: &a.d.Event, Topic: a.d.Record.Topic, Key: a.d.Record.Key,
			Class: a.class, Attempts: a.attempts, RetryIn: a.in, Text: a.text, Late: a.d.Late, Reused: a.d.Reused,
			Listed: a.d.Listed, Committed: a.d.Committed,
		}
	}
	return l.parks.refusals.narrow(0, len(parks), func(from, to int) error {
		parked, err := l.settler.tables.Park(ctx, parks[from:to])
		if err == nil {
			l.settler.parked.Add(parked)
		}
		return err
	}, func(i int, why error) error {
		d := portion[i].d
		portion[i].refused = true
		code := "NOT_PARKED"
		if errors.Is(why, store.ErrIDTaken) {
			code = "ID_REUSED"
		}
		d.Reason = refusedReason(code, "it was to be parked, and the table of parked events refuses its row", why)
		dead := deadOf(d)
		dead.Holds = l.settler.holds(d)
		return l.writeDeadLetter(ctx, d, dead)
	})
}

// nextParks is the next portion for the writer: notes of failed attempts, or as many parks as may be. While as many
// events are parked as may be, parks wait, and so, in the end, does the stream; nothing else waits for them, and they
// do not wait where no retry could make room.
func (l *loop) nextParks() []*parkChange {
	if len(l.parks.notes) > 0 {
		return l.parks.notes[:min(len(l.parks.notes), parksMost)]
	}
	if l.parkingFull() {
		return nil
	}
	return l.parks.wanted[:min(len(l.parks.wanted), parksMost)]
}

func (l *loop) parkingFull() bool {
	s := l.settler
	return s.parked.Load() >= int64(s.c.Limits.ParkedEvents) && s.mayRetry() != nil && !l.parking.waitsForParks()
}

// finishParks takes in that a portion is committed.
func (l *loop) finishParks(portion []*parkChange) {
	if portion[0].kind == parkEvent {
		l.parks.wanted = l.parks.wanted[len(portion):]
	} else {
		l.parks.notes = l.parks.notes[len(portion):]
	}
	l.settler.meter.Parked(len(portion))
	for _, a := range portion {
		topic := a.d.Record.Topic
		if a.refused {
			l.tellDied(a.d)
		}
		l.parking.committed(a)
		l.release(a.d)
		switch {
		case a.in >= 0:
			l.settler.retrier.dueIn(a.in)
		case a.in == store.WhenWell && !l.settler.troubled(topic): // well since it was wanted
			l.settler.retrier.isWell(topic)
		}
	}
	clear(portion)
	l.noteParked()
	l.parking.advance()
	signal(l.progress)
}

// noteParked says up to which result of the sink everything that it gave back is parked.
func (l *loop) noteParked() {
	upTo := l.sorted
	if len(l.parks.wanted) > 0 {
		upTo = l.parks.wanted[0].at
	}
	l.settler.parkedUpTo.Store(upTo)
}

// describe is the last_error of a parked event.
func describe(d *Delivery) string {
	if d.Reason == nil {
		return ""
	}
	return fmt.Sprintf("%s: %s", d.Reason.Code, d.Reason.Text)
}
