package relay

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/retry"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/store"
)

const (
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

	starved bool // events without a key are due, and found the sink's window full
	ahead   int  // lanes of which a portion is read, or asked for, while the one in front of it is out
}

type parkedLane struct {
	name      string
	lane      store.Lane
	out       int    // handed in, no result yet
	recording int    // outcomes of what was handed in that are not committed
	parking   int    // parks wanted and not committed
	version   uint64 // counts these, wanted and committed
	due       bool   // its head's time has come, it is said
	draining  bool   // its head has been published: go on until it is empty
	asking    bool   // rows were asked for
	askedAt   uint64 // version when they were
	waiting   bool   // what was read could not be handed in, or there was nothing: go on when version is another
	few       int    // portions in a row that were small

	run run
}

// of is the lane of the delivery; it is forgotten by advance when nothing of it moves.
func (p *parking) of(topic string, key []byte) *parkedLane {
	name := topic + "\x00" + string(key)
	if key == nil {
		name = topic // every event without a key is its own lane; they move together
	}
	la := p.lanes[name]
	if la == nil {
		la = &parkedLane{name: name, lane: store.Lane{Topic: topic, Key: bytes.Clone(key)}} // the key outlives the event that it came with
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
	p.s.parks = append(p.s.parks, &aside{
		kind: asidePark, d: d, lane: la, attempts: attempts, in: in, class: class, text: describe(d), at: p.s.sorted,
	})
}

// held parks an event that the sink held or diverted. What comes when its lane is held already has no time of its own: it
// moves when what is in front of it has moved.
func (p *parking) held(d *delivery) {
	switch {
	case d.parked: // the rest of a portion: it is still in the table
		la := p.of(d.record.Topic, d.record.Key)
		p.returned(d, la)
		p.stopRun(la)
		if d.record.Key == nil {
			la.draining = false // its topic is diverted
		}
		p.s.release(d)
	case d.record.WasHeld:
		p.park(d, outbox.BlockedBy, 0, store.NotDue)
	default:
		p.diverted(d)
	}
}

// diverted parks an event because of its topic, and says so: nothing was tried, so it has no reason of its own.
func (p *parking) diverted(d *delivery) {
	if d.reason = p.s.term.troubleOf(d.record.Topic); d.reason == nil { // well since
		p.park(d, outbox.Transient, 0, 0)
		return
	}
	p.park(d, outbox.Transient, 0, store.WhenWell)
}

// returned takes in that a parked event has a result.
func (p *parking) returned(d *delivery, la *parkedLane) {
	la.out--
	p.s.term.retrier.weigh(la.lane.Topic, -d.record.Cost)
}

// published is the result of a parked event; its journal row takes it out of the table.
func (p *parking) published(d *delivery) {
	la := p.of(d.record.Topic, d.record.Key)
	p.returned(d, la)
	la.recording++
	la.draining = true
}

// journaled says that the journal row of a retried event is committed.
func (p *parking) journaled(d *delivery) {
	p.of(d.record.Topic, d.record.Key).recording--
	p.s.term.parked.Add(-1)
}

// verdict says what a refusal means for the event: how many attempts it has spent now, and when it may try again. While
// nobody knows whether the event or its partition is at fault, no attempt is spent.
func (p *parking) verdict(d *delivery) (attempts int, pause time.Duration, again bool) {
	if d.reason.Doubtful {
		return d.attempts, p.policy.Pause(max(d.attempts, 1), random()), true
	}
	attempts = d.attempts + 1
	if d.reason.Class == outbox.Permanent {
		return attempts, 0, false
	}
	pause, again = p.policy.Next(attempts, random())
	return attempts, pause, again
}

// rejected is the result of a parked event that failed once more.
func (p *parking) rejected(d *delivery) {
	la := p.of(d.record.Topic, d.record.Key)
	p.returned(d, la)
	p.stopRun(la)
	attempts, pause, again := p.verdict(d)
	d.attempts = attempts
	if !again {
		p.giveUp(d, la)
		return
	}
	la.draining = false
	la.recording++
	p.s.notes = append(p.s.notes, &aside{
		kind: asideLater, d: d, lane: la, attempts: d.attempts, in: pause, class: outbox.Transient, text: describe(d),
	})
}

// giveUp turns a parked event into a dead letter; then its lane goes on.
func (p *parking) giveUp(d *delivery, la *parkedLane) {
	la.recording++
	la.draining = true
	p.stopRun(la)
	p.s.dying = append(p.s.dying, d)
}

// takenBack says that a parked event that was given up is tried again.
func (p *parking) takenBack(d *delivery) {
	la := p.of(d.record.Topic, d.record.Key)
	la.recording--
	la.out++
	p.s.term.retrier.weigh(la.lane.Topic, d.record.Cost)
}

// buried says that the dead letter of a parked event is committed.
func (p *parking) buried(d *delivery) {
	p.of(d.record.Topic, d.record.Key).recording--
	p.s.term.parked.Add(-1)
}

// committed says that an event is parked, or that its failed attempt is noted.
func (p *parking) committed(a *aside) {
	if a.kind == asidePark {
		a.lane.parking--
		a.lane.version++
	} else {
		a.lane.recording--
	}
	p.moved = append(p.moved, a.lane)
}

// take hands in what the retrier read of a lane, or has it read what is due.
func (p *parking) take(word retrierWord) {
	for _, lane := range word.due {
		la := p.of(lane.Topic, lane.Key)
		la.due, la.waiting = true, false
	}
	for i := range word.portions {
		p.takePortion(&word.portions[i], word.session)
	}
}

func (p *parking) takePortion(read *store.Portion, session *session) {
	la := p.of(read.Lane.Topic, read.Lane.Key)
	la.asking = false
	if la.run.asking {
		p.takeAhead(la, read, session)
		return
	}
	_, inMemory := p.s.lanes.byName[la.name]
	switch {
	case inMemory && la.lane.Key != nil: // a replay came while followers of another dead letter wait for it; it is due again at the next look
		la.due, la.waiting = true, true
	case session != p.s.term.mayRetry(): // it ended, and what was read may have been published by another relay since
		la.due = true
	case la.out > 0 || la.recording > 0: // what was read may be out already
	case read.Held: // until a person has decided about the dead letter
		la.due, la.draining, la.few = false, false, 0
	case len(read.Rows) == 0:
		p.empty(la)
	case !read.Rows[0].Due:
		la.due, la.draining = false, false
	default:
		p.handIn(la, read, session)
	}
}

// empty gives the lane back to the live path, if nothing was parked since its rows were read. If something was, or if the
// sink still has records of it that are on their way back, the lane moves again when they are parked.
func (p *parking) empty(la *parkedLane) {
	engine := p.s.term.engine
	_, inMemory := p.s.lanes.byName[la.name]
	switch {
	case la.lane.Key == nil || inMemory,
		la.version == la.askedAt && la.parking == 0 && engine.Release(la.lane.Topic, la.lane.Key, engine.Hold(la.lane.Topic, la.lane.Key)):
		la.due, la.draining, la.few = false, false, 0
	default:
		la.draining, la.waiting = true, true
	}
}

// handIn submits the lane's next portion: its head alone, and once that is published as much as was read.
func (p *parking) handIn(la *parkedLane, read *store.Portion, session *session) {
	rows := read.Rows
	if la.few++; read.More || len(rows) >= fewRows {
		la.few = 0
	}
	if la.few > fewCycles && la.lane.Key != nil {
		p.s.term.intake.pause(la.name, handOver)
	}
	if la.lane.Key != nil && !la.draining {
		rows = rows[:1]
	}
	la.due = false
	records := p.deliver(la, rows, session)
	if len(records) == 0 {
		return
	}
	taken, err := p.submit(la, records)
	if la.lane.Key == nil {
		p.starved = taken == 0
	}
	cost, again := 0, 0
	for _, rec := range records[:taken] {
		cost += rec.Cost
		if rec.Owner.(*delivery).attempts > 0 {
			again++
		}
	}
	p.s.r.metrics.retries.Add(float64(again))
	la.out += taken
	p.s.term.retrier.weigh(la.lane.Topic, cost)
	for _, rec := range records[taken:] {
		p.s.forget(rec.Owner.(*delivery))
	}
	switch {
	case err == nil:
		p.goOn(la, read, taken)
	case la.lane.Key == nil:
		la.draining = false // the rest is due again at the next look
	default: // an earlier record of the lane is still on its way to being parked or buried
		p.stopRun(la)
		la.due, la.waiting = true, true
	}
}

// submit hands the records in and says how many the sink took. Those of a lane go past its hold and past the window. Of
// those without a key it takes what fits, the others are due again at the next look.
func (p *parking) submit(la *parkedLane, records []*sink.Record) (taken int, err error) {
	engine := p.s.term.engine
	switch {
	case p.s.term.stopping.Load(): // they are admitted: either the drain waits for them, or it is seen here that it began
		return 0, errors.New("stopping")
	case la.lane.Key == nil:
		return engine.Submit(ended, records)
	}
	if err := engine.Resume(la.lane.Topic, la.lane.Key, records); err != nil {
		return 0, err
	}
	return len(records), nil
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
		case p.lanes[la.name] != la || p.advanceRun(la) || la.out > 0 || la.recording > 0 || la.asking:
		case la.due || la.draining:
			if !la.waiting || la.version != la.askedAt {
				la.asking, la.askedAt, la.waiting = true, la.version, false
				p.s.term.retrier.ask(laneAsk{store.Ask{Lane: la.lane}, la.lane.Key != nil && !la.draining})
			}
		case la.parking == 0:
			p.s.term.intake.resume(la.name)
			delete(p.lanes, la.name)
		}
	}
	clear(p.moved)
	p.moved = p.moved[:0]
	p.s.term.moving.Store(int64(len(p.lanes)))
}

// waitsForParks says that a lane which could make room cannot go on before what the sink gave back of it is parked: the
// limit of parked events must not keep that waiting, or both would wait for ever. It is bounded by the sink's window. So it is
// with events without a key, which need a place in the window, while it is full of events that are to be parked.
func (p *parking) waitsForParks() bool {
	if p.starved {
		return true
	}
	for _, la := range p.lanes {
		if la.waiting && la.parking > 0 {
			return true
		}
	}
	return false
}

// deliver turns parked rows into records for the sink. A row that cannot be a message any more is given up when its turn
// comes.
func (p *parking) deliver(la *parkedLane, rows []store.ParkedRow, session *session) (records []*sink.Record) {
	router, inflight := session.again, p.s.term.inflight
	now := time.Now()
	router.At(now)
	var free, ds []*delivery
	for i := range rows {
		if len(free) == 0 {
			free = inflight.take(free)
		}
		d := free[len(free)-1]
		d.event, d.attempts, d.parked, d.received, d.late = rows[i].Event, rows[i].Attempts, true, sinceStart(now), rows[i].Late
		d.replay = rows[i].Replay
		d.encode(router)
		if d.reason != nil && len(records) > 0 {
			break
		}
		free = free[:len(free)-1]
		d.record.Topic, d.record.Key = la.lane.Topic, la.lane.Key
		ds = append(ds, d)
		if d.reason != nil {
			d.record.Partition = -1
			p.giveUp(d, la)
			break
		}
		records = append(records, &d.record)
	}
	inflight.admit(ds)
	return records
}
