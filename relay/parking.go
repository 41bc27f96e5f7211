package relay

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/retry"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/store"
)

const (
	// drainRows is how many parked events of a lane are read and handed in at once.
	drainRows = 500
	// fewRows and fewCycles say when a lane is nearly drained and yet does not run empty, because it is hot: then the stream
	// stands still for a moment, at most handOver, so that the lane can be handed back to it.
	fewRows   = 100
	fewCycles = 3
	handOver  = time.Second
)

// parking brings parked events back. The sink holds every lane that has a parked event, so whatever arrives for it comes
// back held and is parked behind the others; the queue is the table, in the order of positions. A lane is drained from
// its head, in portions, and given back to the live path when nothing of it is parked, on its way to being parked, or
// with the sink.
//
// Its state is only of lanes that move at present; it belongs to the settler's goroutine.
type parking struct {
	s      *settler
	policy retry.Policy
	lanes  map[string]*parkedLane
	moved  []*parkedLane // something happened to them since the last advance
}

type parkedLane struct {
	name      string
	lane      store.Lane
	out       int    // handed in, no result yet
	recording int    // outcomes of what was handed in that are not committed
	parking   int    // parks wanted and not committed
	version   uint64 // counts parks, wanted and committed
	draining  bool   // its head was due, or has been published: go on until it is empty
	asking    bool   // rows were asked for
	askedAt   uint64 // version when they were
	dry       bool   // there were none
	few       int    // portions in a row that were small
}

// of is the lane of the delivery; it is forgotten by advance when nothing of it moves.
func (p *parking) of(topic string, key []byte) *parkedLane {
	name := topic + "\x00" + string(key)
	if key == nil {
		name = topic // every event without a key is its own lane; they move together
	}
	la := p.lanes[name]
	if la == nil {
		la = &parkedLane{name: name, lane: store.Lane{Topic: topic, Key: key}}
		p.lanes[name] = la
	}
	p.moved = append(p.moved, la)
	return la
}

// park wants an event stored aside that the sink gave back.
func (p *parking) park(d *delivery, class outbox.ErrorClass, attempts int, in time.Duration) {
	la := p.of(d.record.Topic, d.record.Key)
	la.version++
	la.parking++
	d.retried = false
	p.s.wanted = append(p.s.wanted, &aside{kind: asidePark, d: d, lane: la, attempts: attempts, in: in, class: class, text: describe(d)})
}

// want records the outcome of an event that was handed in.
func (p *parking) want(a *aside) {
	a.lane.recording++
	p.s.wanted = append(p.s.wanted, a)
}

// guilty parks an event that was rejected for a reason that may pass.
func (p *parking) guilty(d *delivery) {
	if pause, again := p.policy.Next(1, random()); again {
		p.park(d, outbox.Transient, 1, pause)
		return
	}
	p.s.die(d)
}

// held parks an event that the sink held or diverted.
func (p *parking) held(d *delivery) {
	switch {
	case d.parked: // the rest of a portion: it is still in the table
		la := p.of(d.record.Topic, d.record.Key)
		la.out--
		p.s.release(d)
	case p.s.r.troubled(d.record.Topic):
		p.park(d, outbox.Transient, 0, store.WhenWell)
	default:
		p.park(d, outbox.BlockedBy, 0, store.NotDue)
	}
}

// published is the result of a parked event; its journal row takes it out of the table.
func (p *parking) published(d *delivery) {
	la := p.of(d.record.Topic, d.record.Key)
	la.out--
	la.recording++
	la.draining = true
}

// journaled says that the journal row of a retried event is committed.
func (p *parking) journaled(d *delivery) {
	p.of(d.record.Topic, d.record.Key).recording--
	p.s.r.parked.Add(-1)
}

// rejected is the result of a parked event that failed once more.
func (p *parking) rejected(d *delivery) {
	la := p.of(d.record.Topic, d.record.Key)
	la.out--
	attempts := d.attempts + 1
	pause, again := p.policy.Next(attempts, random())
	if d.reason.Class == outbox.Permanent || !again {
		p.want(p.s.giveUp(d, la, attempts))
		la.draining = true
		return
	}
	la.draining = false
	p.want(&aside{kind: asideLater, d: d, lane: la, attempts: attempts, in: pause, class: outbox.Transient, text: describe(d)})
}

func (p *parking) committed(a *aside) {
	if a.kind == asidePark {
		a.lane.parking--
		a.lane.version++
	} else {
		a.lane.recording--
	}
	p.moved = append(p.moved, a.lane)
}

// take hands in what the retrier read of a lane: because it was asked to, or because something of the lane is due.
func (p *parking) take(read laneRows) {
	la := p.of(read.lane.Topic, read.lane.Key)
	if !read.asked && (la.asking || la.draining || la.out > 0 || la.recording > 0) {
		return // it moves already
	}
	la.asking = false
	switch {
	case len(read.rows) == 0:
		p.empty(la)
	case !read.rows[0].Due:
		la.draining = false
	default:
		p.handIn(la, read.rows)
	}
}

// empty gives the lane back to the live path, if nothing was parked since its rows were read. If something was, or if the
// sink still has records of it that are on their way back, the lane moves again when they are parked.
func (p *parking) empty(la *parkedLane) {
	la.dry = true
	if la.lane.Key == nil {
		la.draining = false
		return
	}
	engine := p.s.r.engine
	if la.version == la.askedAt && la.parking == 0 && engine.Release(la.lane.Topic, la.lane.Key, engine.Hold(la.lane.Topic, la.lane.Key)) {
		la.draining, la.few = false, 0
	}
}

// handIn submits the lane's next portion: its head alone when that has failed before, else as much as was read.
func (p *parking) handIn(la *parkedLane, rows []store.ParkedRow) {
	if la.few++; len(rows) >= fewRows {
		la.few = 0
	}
	if la.few > fewCycles {
		p.s.r.intake.pause(la.name, handOver)
	}
	if rows[0].Attempts > 0 && !la.draining {
		rows = rows[:1]
	}
	la.draining, la.dry = true, false
	records, ready := p.s.deliver(la, rows)
	if !ready {
		la.draining = false
	}
	if len(records) == 0 {
		return
	}
	engine := p.s.r.engine
	if la.lane.Key == nil {
		// What does not fit now is tried again when it is due again.
		taken, _ := engine.Submit(ended, records)
		la.out += taken
		for _, rec := range records[taken:] {
			p.s.forget(rec.Owner.(*delivery))
		}
		return
	}
	if err := engine.Retry(la.lane.Topic, la.lane.Key, engine.Hold(la.lane.Topic, la.lane.Key), records); err != nil {
		for _, rec := range records {
			p.s.forget(rec.Owner.(*delivery))
		}
		la.draining = false
		return
	}
	la.out += len(records)
}

// ended is a context that has ended: Submit takes what fits without waiting.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// advance asks for the next portion of the lanes that can go on, and forgets those that rest.
func (p *parking) advance() {
	for _, la := range p.moved {
		switch {
		case p.lanes[la.name] != la || la.out > 0 || la.recording > 0 || la.asking:
		case la.draining:
			if !la.dry || la.version != la.askedAt {
				la.asking, la.askedAt = true, la.version
				p.s.r.retrier.ask(la.lane)
			}
		case la.parking == 0:
			p.s.r.intake.resume(la.name)
			delete(p.lanes, la.name)
		}
	}
	clear(p.moved)
	p.moved = p.moved[:0]
}

// deliver turns parked rows into records for the sink. A row that cannot be a message any more is given up when its turn
// comes. Not ready: there is no session to send in.
func (s *settler) deliver(la *parkedLane, rows []store.ParkedRow) (records []*sink.Record, ready bool) {
	session := s.r.session.Load()
	if session == nil {
		return nil, false
	}
	router := session.again
	router.now = time.Now()
	var slab *slab
	var ds []*delivery
	for i := range rows {
		if slab == nil || slab.used == slabSize {
			slab = s.r.inflight.open()
			defer s.r.inflight.seal(slab) // after they are admitted
		}
		d := &slab.items[slab.used]
		d.slab, d.event, d.attempts, d.parked, d.received = slab, rows[i].Event, rows[i].Attempts, true, router.now
		d.reason = router.route(d)
		if d.reason != nil && len(records) > 0 {
			break
		}
		slab.used++
		d.record.Topic, d.record.Key = la.lane.Topic, la.lane.Key
		ds = append(ds, d)
		if d.reason != nil {
			d.record.Partition = -1
			s.parking.want(s.giveUp(d, la, d.attempts))
			break
		}
		records = append(records, &d.record)
	}
	s.r.inflight.admit(ds)
	return records, true
}
