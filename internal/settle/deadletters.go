package settle

import (
	"context"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/sink"
)

const (
	// readyMost bounds the dead letters that the breaker has let pass and that are not written yet: what the table
	// refuses is no flood.
	readyMost = 16
	// waitingMost is how many events that cannot be messages may wait for their dead letters: they take no place in
	// the sink's window, and the table may refuse them for as long as no one repairs it.
	waitingMost = 1000
)

// deadLetters are the events that become dead letters. They belong to the loop's goroutine.
type deadLetters struct {
	toWrite chan []*Delivery
	written chan deadWritten

	waiting []*Delivery // for the breaker
	copies  copies      // of those that it has let pass, to dlq.topic
	ready   []*Delivery // for the writer
	writing int         // that the writer has
	stuck   []*Delivery // that the table refuses: for the writer once more at again
	again   time.Time
}

// deadWritten is a dead letter that is committed, or why the table refuses it.
type deadWritten struct {
	d       *Delivery
	refused error
}

// refusedDeadLetter is the kind of write that fails while the table refuses a dead letter.
const refusedDeadLetter = "dead_letter_row"

// stuckPause is the pause between two tries of dead letters that the table refuses.
const stuckPause = time.Second

// refused keeps a dead letter that the table does not take, with its lane, until someone repairs the table.
func (dead *deadLetters) refused(w deadWritten) {
	dead.stuck = append(dead.stuck, w.d)
	dead.again = time.Now().Add(stuckPause)
}

// retryStuck hands the writer what the table has refused, when it is time.
func (dead *deadLetters) retryStuck() {
	if len(dead.stuck) > 0 && !time.Now().Before(dead.again) {
		dead.ready = append(dead.ready, dead.stuck...)
		dead.stuck = dead.stuck[:0]
	}
}

// deadLetter makes the event a dead letter; its followers wait, in memory, for the moment that this takes. It has no
// parked events in front of it: of a lane with parked events the sink holds all but what was retried.
func (l *loop) deadLetter(d *Delivery) {
	l.lanes.rejected(d)
	l.dead.waiting = append(l.dead.waiting, d)
}

// readyDead takes events as far on their way to dead letters as may be: past the breaker, to dlq.topic, and to the
// writer.
func (l *loop) readyDead() {
	dead := &l.dead
	dead.retryStuck()
	for len(dead.waiting) > 0 && len(dead.ready)+dead.writing+len(dead.stuck) < readyMost && dead.copies.mayAdd() &&
		l.settler.breaker.mayDeadLetter(dead.waiting[0]) {
		d := dead.waiting[0]
		dead.waiting = dead.waiting[1:]
		if dead.copies.topic == "" {
			dead.ready = append(dead.ready, d)
		} else {
			dead.copies.wait = append(dead.copies.wait, d)
		}
	}
	dead.copies.send()
}

// reconsider does what the breaker says about the events that wait for it: it tries one, or all, again. What the
// sink has not refused cannot be a message, whatever the broker takes.
func (l *loop) reconsider(w breakerWord) {
	if w.probe {
		i := slices.IndexFunc(l.dead.waiting, (*Delivery).Refused)
		if i < 0 {
			return
		}
		if d := l.dead.waiting[i]; l.tryAgain(d) {
			d.mark().probe = true
			l.dead.waiting = slices.Delete(l.dead.waiting, i, i+1)
		}
		return
	}
	waiting := l.dead.waiting
	l.dead.waiting = nil
	for _, d := range waiting {
		d.mark().pardoned = w.pardon
		if !d.Refused() || !l.tryAgain(d) {
			l.dead.waiting = append(l.dead.waiting, d)
		}
	}
}

// tryAgain hands a refused event to the sink once more; false: it does not take it now.
func (l *loop) tryAgain(d *Delivery) bool {
	engine, rec := l.settler.engine, &d.Record
	if rec.Key == nil {
		engine.Settled([]*sink.Record{rec})
		if engine.Insert(rec) != nil {
			rec.Result = sink.None // it is not with the sink any more
			return false
		}
	} else if engine.Retry(rec.Lane(), engine.Hold(rec.Lane()), []*sink.Record{rec}) != nil {
		return false
	}
	if d.parked {
		l.parking.takenBack(d)
	} else {
		l.lanes.takenBack(d)
	}
	return true
}

// next are the dead letters that are written next: one, or as many as have no lane, which one transaction stores.
func (dead *deadLetters) next() []*Delivery {
	for i, d := range dead.ready {
		if d.parked || d.Record.Result != sink.None {
			return dead.ready[:max(i, 1)]
		}
	}
	return dead.ready
}

// writeDead commits dead letters, in order.
func (l *loop) writeDead(ctx context.Context) {
	for {
		var ds []*Delivery
		select {
		case ds = <-l.dead.toWrite:
		case <-ctx.Done():
			return
		}
		together := len(ds) > 1
		if together && !l.insist(ctx, "dead_letter", func() error {
			err := l.commitTogether(ctx, ds)
			if together = err == nil; store.IsAboutRows(err) {
				return nil // each on its own: the others may be taken
			}
			return err
		}) {
			return
		}
		for _, d := range ds {
			w := deadWritten{d: d}
			if !together && !l.insist(ctx, "dead_letter", func() error {
				err := l.commitDead(ctx, d)
				if w.refused = nil; store.IsAboutRows(err) { // the others may be taken
					w.refused, err = err, nil
				}
				return err
			}) {
				return
			}
			select {
			case l.dead.written <- w:
			case <-ctx.Done():
				return
			}
		}
	}
}

// commitTogether commits dead letters that have no lane.
func (l *loop) commitTogether(ctx context.Context, ds []*Delivery) error {
	letters := make([]store.Dead, len(ds))
	for i, d := range ds {
		letters[i] = l.letterOf(d)
	}
	return l.settler.tables.Settle(ctx, nil, letters)
}

func (l *loop) commitDead(ctx context.Context, d *Delivery) error {
	return l.writeDeadLetter(ctx, d, l.letterOf(d))
}

func (l *loop) letterOf(d *Delivery) store.Dead {
	dead := deadOf(d)
	dead.Holds = l.settler.holds(d)
	dead.Stops = d.Replay && !dead.Holds // else what is behind it waits in the table
	if d.Refused() {
		dead.Partition = d.Record.Partition
	}
	return dead
}

// deadOf is the dead letter of an event that has no partition and holds nothing.
func deadOf(d *Delivery) store.Dead {
	return store.Dead{
		Event: &d.Event, Topic: d.Record.Topic, Key: d.Record.Key, Partition: -1,
		Attempts: max(d.Attempts, 1), Class: d.Reason.Class, Code: d.Reason.Code, Text: d.Reason.Text,
		Committed: d.Committed,
	}
}

func (l *loop) writeDeadLetter(ctx context.Context, d *Delivery, dead store.Dead) error {
	if d.parked {
		behind, err := l.settler.tables.GiveUp(ctx, dead)
		l.settler.parked.Add(-behind)
		return err
	}
	return l.settler.tables.Settle(ctx, nil, []store.Dead{dead})
}

// named says which event the line is about, in words of a length that a line can have.
func named(line *zerolog.Event, d *Delivery) *zerolog.Event {
	e, short := &d.Event, func(text []byte) []byte { return text[:min(len(text), 200)] }
	return line.Bytes("id", short(e.ID)).Bytes("event_type", short(e.EventType)).
		Bytes("aggregate_type", short(e.AggregateType)).Bytes("aggregate_id", short(e.AggregateID)).
		Stringer("position", e.Position).Str("topic", d.Record.Topic)
}

// tellDied counts and logs a dead letter that is committed.
func (l *loop) tellDied(d *Delivery) {
	l.settler.meter.Died(d.Reason.Class)
	if o := l.settler.outboxes; o != nil {
		o.Died(d.Event.Source)
	}
	l.settler.host.Died(d.Record.Topic, d.Reason)
	if d.Reason.Stack != "" {
		l.settler.log.Error().Str("code", d.Reason.Code).Str("stack", d.Reason.Stack).Msg("a mistake in the program")
	}
	named(l.settler.log.Warn(), d).Str("code", d.Reason.Code).
		Int("attempts", max(d.Attempts, 1)).Str("reason", d.Reason.Text).Msg("event moved to the dead-letter table")
}

// finishDead takes in that a dead letter is committed, or that the table refuses it.
func (l *loop) finishDead(w deadWritten) {
	d := w.d
	l.dead.writing--
	if w.refused != nil {
		l.dead.refused(w)
		if l.settler.host.CannotRecord(refusedDeadLetter, w.refused) {
			l.settler.log.Warn().Err(w.refused).Str("position", d.Event.Position.String()).
				Msg("the dead-letter table refuses an event; it waits with its key until the table accepts it")
		}
		return
	}
	if len(l.dead.stuck) == 0 {
		l.settler.host.Recorded(refusedDeadLetter)
	}
	l.tellDied(d)
	switch {
	case d.parked:
		l.parking.deadWritten(d)
	case l.settler.holds(d):
		l.holdLane(d)
	case d.Record.Result == sink.Rejected:
		l.lanes.deadWritten(d)
	}
	l.release(d)
	l.lanes.advance()
	l.parking.advance()
	signal(l.progress)
}
