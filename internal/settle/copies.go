package settle

import (
	"errors"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// The bounds of what is on its way to dlq.topic: it takes places of the window, and of what may be unrecorded, which
// it must not fill while that topic is in trouble.
const (
	copiesMost  = 64
	copiesShare = 4       // of limits.in_flight_events and limits.max_unrecorded
	copiesBytes = 4 << 20 // at least one copy is always let go
	copyAgain   = time.Second
)

// copies sends dead letters to dlq.topic before they are written to the table. An event is terminal by its row, so
// when the process dies in between, the event comes again, dies again and is copied again: a copy can be there twice,
// and none is missing. A copy belongs to no lane, and the trouble of its topic is no one else's.
//
// It belongs to the settler's goroutine.
type copies struct {
	loop  *loop
	topic string // or a template for one; "" = none
	most  int
	wait  []*Delivery // events whose copies are to be sent
	out   int         // copies with the sink
	bytes int         // of these
	again time.Time   // not before then: the topic has refused one for a reason that may pass
}

func newCopies(l *loop) copies {
	limits := l.settler.c.Limits
	return copies{loop: l, topic: l.settler.c.DLQ.Topic,
		most: max(1, min(copiesMost, limits.InFlightEvents/copiesShare, limits.MaxUnrecorded/copiesShare))}
}

// mayAdd reports whether there is room for another event whose copy is to be sent.
func (c *copies) mayAdd() bool { return c.topic == "" || len(c.wait)+c.out < c.most }

// waits reports that copies are to be sent and could not be.
func (c *copies) waits() bool { return len(c.wait) > 0 && c.out == 0 }

// send hands copies to the sink.
func (c *copies) send() {
	if len(c.wait) == 0 || time.Now().Before(c.again) {
		return
	}
	encoder := *c.loop.settler.encoder.Load()
	c.again = time.Time{}
	for len(c.wait) > 0 && (c.out == 0 || c.bytes < copiesBytes) {
		d := c.wait[0]
		copied := &Delivery{dead: &deadMark{copyOf: d}}
		copied.Record.Owner = copied
		if reason := encoder.Copy(&copied.Record, d, d.mark().refusal); reason != nil {
			c.wait = slices.Delete(c.wait, 0, 1)
			c.none(d, c.topic, reason)
			continue
		}
		if c.loop.settler.engine.Insert(&copied.Record) != nil {
			return // the process ends
		}
		c.wait = slices.Delete(c.wait, 0, 1)
		c.out++
		c.bytes += copied.Record.Cost
	}
}

// result takes in what became of a copy.
func (c *copies) result(copied *Delivery) {
	rec, d := &copied.Record, copied.dead.copyOf
	c.out--
	c.bytes -= rec.Cost
	c.loop.settler.engine.Settled([]*sink.Record{rec})
	switch {
	case rec.Result == sink.Published:
		c.loop.settler.host.Recorded(copyWrite)
	case rec.Reason != nil && rec.Reason.Class == outbox.Permanent && d.mark().refusal == nil:
		d.mark().refusal = rec.Reason // it may be too large: once more without its value
		c.wait = slices.Insert(c.wait, 0, d)
		return
	case rec.Reason != nil && rec.Reason.Class == outbox.Permanent:
		c.none(d, rec.Topic, rec.Reason)
		return
	default:
		c.refused(rec)
		c.again = time.Now().Add(copyAgain)
		c.wait = slices.Insert(c.wait, 0, d)
		return
	}
	c.loop.dead.ready = append(c.loop.dead.ready, d)
}

// copyWrite names the copy among the writes that can fail.
const copyWrite = "dead_letter_copy"

// refused says why a copy is not taken for now: until it is, no further event becomes a dead letter.
func (c *copies) refused(rec *sink.Record) {
	if why := rec.Reason; why != nil && c.loop.settler.host.CannotRecord(copyWrite, errors.New(why.Code+": "+why.Text)) {
		c.loop.settler.log.Warn().Str("topic", rec.Topic).Str("code", why.Code).Str("reason", why.Text).
			Msg("dlq.topic does not take a copy of a dead letter; it is tried again each second, and dead letters wait for it")
	}
}

// none continues with a dead letter whose copy no topic accepts.
func (c *copies) none(d *Delivery, topic string, why *sink.Reason) {
	c.loop.settler.log.Warn().Str("topic", topic).Str("code", why.Code).Str("reason", why.Text).
		Str("position", d.Event.Position.String()).
		Msg("dlq.topic refuses the copy of a dead letter, even without its value; it is in the table only")
	c.loop.settler.meter.Uncopied()
	c.loop.settler.host.Recorded(copyWrite)
	c.loop.dead.ready = append(c.loop.dead.ready, d)
}
