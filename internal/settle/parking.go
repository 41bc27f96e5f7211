package settle

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/retry"
	"github.com/cdc-relay/cdc-relay/sink"
)

const (
	// fewRows and fewCycles say when a lane is nearly drained and yet does not run empty, because it is hot: then the
	// stream stands still for a moment, at most handOver, so that the lane can be handed back to it.
	fewRows   = 100
	fewCycles = 3
	handOver  = time.Second
)

// parking brings parked events back. The sink holds every lane that has a parked event, so whatever arrives for it
// comes back held and is parked behind the others; the queue is the table, in the order of positions. A lane is
// drained from its head, in portions, and given back to the live path when nothing of it is parked, on its way to
// being parked, or with the sink.
//
// Its state is only of lanes that move at present; it belongs to the settler's goroutine.
type parking struct {
	loop   *loop
	policy retry.Policy
	lanes  map[laneName]*parkedLane
	moved  []*parkedLane // something happened to them since the last advance

	starved time.Time // when events without a key were due and found the sink's window full; zero: the last ones did not
	ahead   int       // lanes whose next portion is read, or requested, while the previous one is out
}

type parkedLane struct {
	name      laneName
	lane      sink.Lane
	out       int    // handed in, no result yet
	recording int    // outcomes of what was handed in that are not committed
	parking   int    // parks wanted and not committed
	version   uint64 // counts these, wanted and committed
	due       bool   // its head's time has come, it is said
	probe     bool   // its head is to show whether its topic is well
	draining  bool   // its head has been published: go on until it is empty
	asking    bool   // rows were asked for
	askedAt   uint64 // version when they were
	waiting   bool   // what was read could not be handed in, or there was nothing: go on when version is another
	few       int    // portions in a row that were small

	run run
}

// of is the lane of parked events; it is forgotten by advance when nothing of it moves.
func (p *parking) of(lane sink.Lane) *parkedLane {
	name := nameOf(lane)
	la := p.lanes[name]
	if la == nil {
		lane.Key = bytes.Clone(lane.Key) // it outlives the event that it came with
		la = &parkedLane{name: name, lane: lane}
		p.lanes[name] = la
	}
	p.moved = append(p.moved, la)
	return la
}

// park wants an event stored aside that the sink gave back.
func (p *parking) park(d *Delivery, class outbox.ErrorClass, attempts int, in time.Duration) {
	la := p.of(d.Record.Lane())
	la.version++
	la.parking++
	d.retried = false
	p.loop.parks.wanted = append(p.loop.parks.wanted, &parkChange{
		kind: parkEvent, d: d, lane: la, attempts: attempts, in: in, class: class, text: describe(d), at: p.loop.sorted,
	})
}

// held parks an event that the sink held or diverted; one of a held lane moves when what is in front of it has moved.
func (p *parking) held(d *Delivery) {
	switch {
	case d.parked: // the rest of a portion: it is still in the table
		la := p.of(d.Record.Lane())
		p.returned(d, la)
		p.stopRun(la)
		if d.Record.Key == nil || p.loop.settler.troubled(d.Record.Topic) {
			la.draining = false
		}
		p.loop.release(d)
	case d.Record.WasHeld:
		p.park(d, outbox.BlockedBy, 0, store.NotDue)
	default:
		p.diverted(d)
	}
}

// diverted parks an event because of its topic, and says so: nothing was tried, so it has no reason of its own.
func (p *parking) diverted(d *Delivery) {
	if d.Reason = p.loop.settler.TroubleOf(d.Record.Topic); d.Reason == nil { // well since
		p.park(d, outbox.Transient, 0, 0)
		return
	}
	p.loop.settler.probes.remember(p.of(d.Record.Lane()).lane, d.Record.Partition)
	p.park(d, outbox.Transient, 0, store.WhenWell)
}

// returned takes in that a parked event has a result.
func (p *parking) returned(d *Delivery, la *parkedLane) {
	la.out--
	p.loop.settler.retrier.weigh(la.lane.Topic, -d.Record.Cost)
}

// published is the result of a parked event; its journal row takes it out of the table.
func (p *parking) published(d *Delivery) {
	la := p.of(d.Record.Lane())
	p.returned(d, la)
	la.recording++
	la.draining = true
}

// journaled reports that the journal row of a retried event is committed.
func (p *parking) journaled(d *Delivery) {
	p.of(d.Record.Lane()).recording--
	p.loop.settler.parked.Add(-1)
}

// verdict says how many attempts the event has spent now, and when it may try again. A doubtful refusal spends none.
func (p *parking) verdict(d *Delivery) (attempts int, pause time.Duration, again bool) {
	named(p.loop.settler.log.Debug(), d).Int("attempts", d.Attempts+1).Str("code", d.Reason.Code).
		Str("reason", d.Reason.Text).Msg("attempt failed")
	if d.Reason.Doubtful {
		return d.Attempts, max(p.policy.Pause(max(d.Attempts, 1), rand.Float64()), d.Reason.Pause), true
	}
	attempts = d.Attempts + 1
	if d.Reason.Class == outbox.Permanent {
		return attempts, 0, false
	}
	pause, again = p.policy.Next(attempts, rand.Float64())
	return attempts, pause, again
}

// rejected is the result of a parked event that failed once more.
func (p *parking) rejected(d *Delivery) {
	la := p.of(d.Record.Lane())
	p.returned(d, la)
	p.stopRun(la)
	attempts, pause, again := p.verdict(d)
	d.Attempts = attempts
	if !again {
		p.giveUp(d, la)
		return
	}
	la.draining = false
	la.recording++
	p.loop.parks.notes = append(p.loop.parks.notes, &parkChange{
		kind: parkLater, d: d, lane: la, attempts: d.Attempts, in: pause, class: outbox.Transient, text: describe(d),
	})
}

// giveUp turns a parked event into a dead letter; then its lane goes on.
func (p *parking) giveUp(d *Delivery, la *parkedLane) {
	la.recording++
	la.draining = true
	p.stopRun(la)
	p.loop.dead.waiting = append(p.loop.dead.waiting, d)
}

// takenBack reports that a parked event that was given up is tried again.
func (p *parking) takenBack(d *Delivery) {
	la := p.of(d.Record.Lane())
	la.recording--
	la.out++
	p.loop.settler.retrier.weigh(la.lane.Topic, d.Record.Cost)
}

// buried reports that the dead letter of a parked event is committed.
func (p *parking) deadWritten(d *Delivery) {
	p.of(d.Record.Lane()).recording--
	p.loop.settler.parked.Add(-1)
}

// committed reports that an event is parked, or that its failed attempt is noted.
func (p *parking) committed(a *parkChange) {
	if a.kind == parkEvent {
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
		la := p.of(lane)
		la.due, la.waiting = true, false
	}
	for _, lane := range word.probes {
		la := p.of(lane)
		la.due, la.probe, la.waiting = true, true, false
	}
	for i := range word.portions {
		p.takePortion(&word.portions[i], word.session)
	}
}

func (p *parking) takePortion(read *store.Portion, session Session) {
	la := p.of(read.Lane)
	la.asking = false
	if la.run.asking {
		p.takeAhead(la, read, session)
		return
	}
	_, inMemory := p.loop.lanes.byName[la.name]
	switch {
	case inMemory && la.lane.Key != nil:
		// A replay came while followers of another dead letter wait for it; it is due again at the next look.
		la.due, la.waiting = true, true
	case session != p.loop.settler.mayRetry(): // it ended; another relay may have published what was read since
		la.due = true
	case la.out > 0 || la.recording > 0: // what was read may be out already
	case read.Held: // until a person has decided about the dead letter
		p.loop.settler.probes.forget(la.lane)
		la.due, la.probe, la.draining, la.few = false, false, false, 0
	case len(read.Rows) == 0:
		p.loop.settler.probes.forget(la.lane)
		la.probe = false
		p.empty(la)
	case !read.Rows[0].Due && !la.probe:
		la.due, la.draining = false, false
	default:
		p.handIn(la, read, session)
	}
}

// empty gives the lane back to the live path, if nothing was parked since its rows were read. If something was, or if
// the sink still has records of it that are on their way back, the lane moves again when they are parked.
func (p *parking) empty(la *parkedLane) {
	engine := p.loop.settler.engine
	_, inMemory := p.loop.lanes.byName[la.name]
	switch {
	case la.lane.Key == nil || inMemory,
		la.version == la.askedAt && la.parking == 0 &&
			engine.Release(la.lane, engine.Hold(la.lane)):
		la.due, la.draining, la.few = false, false, 0
	default:
		la.draining, la.waiting = true, true
	}
}

// handIn submits the lane's next portion: its head alone, and once that is published as much as was read.
func (p *parking) handIn(la *parkedLane, read *store.Portion, session Session) {
	rows := read.Rows
	if la.few++; read.More || len(rows) >= fewRows {
		la.few = 0
	}
	if la.few > fewCycles && la.lane.Key != nil {
		p.loop.settler.gate.pause(la.name)
	}
	if la.lane.Key != nil && !la.draining || la.probe {
		rows = rows[:1]
	}
	la.due = false
	records := p.deliver(la, rows, session)
	la.probe = false
	if len(records) == 0 {
		return
	}
	taken, err := p.submit(la, records)
	if la.lane.Key == nil {
		if p.starved = (time.Time{}); taken == 0 {
			p.starved = time.Now()
		}
	}
	cost, again := 0, 0
	for _, rec := range records[:taken] {
		cost += rec.Cost
		if rec.Owner.(*Delivery).Attempts > 0 {
			again++
		}
	}
	p.loop.settler.meter.Retried(again)
	la.out += taken
	p.loop.settler.retrier.weigh(la.lane.Topic, cost)
	for _, rec := range records[taken:] { // their events stay parked
		p.loop.settler.inflight.Forget([]*Delivery{rec.Owner.(*Delivery)})
	}
	switch {
	case err == nil:
		p.goOn(la, read, taken)
	case la.lane.Key == nil:
		la.draining = false // the rest is due again at the next look
	default: // an earlier record of the lane is still on its way to being parked or a dead letter
		p.stopRun(la)
		la.due, la.waiting = true, true
	}
}

// submit hands the records in and says how many the sink took. Those of a lane go past its hold and past the window.
// Of those without a key it takes what fits, the others are due again at the next look.
func (p *parking) submit(la *parkedLane, records []*sink.Record) (taken int, err error) {
	engine := p.loop.settler.engine
	switch {
	case p.loop.settler.host.Stopping(): // they are admitted: the drain waits for them, or it is seen here that it began
		return 0, errors.New("stopping")
	case la.lane.Key == nil:
		return engine.Submit(ended, records)
	}
	if err := engine.Resume(la.lane, records); err != nil {
		return 0, err
	}
	return len(records), nil
}

// ended is a context: Submit takes what fits without waiting.
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
				p.loop.settler.retrier.ask(laneAsk{store.Ask{Lane: la.lane}, la.lane.Key != nil && !la.draining})
			}
		case la.parking == 0:
			p.loop.settler.gate.resume(la.name)
			delete(p.lanes, la.name)
		}
	}
	clear(p.moved)
	p.moved = p.moved[:0]
	p.loop.settler.moving.Store(int64(len(p.lanes)))
}

// starvedFor is how long events without a key count as due that found no place: they are handed in again at each look
// of the retrier, but not when their topic is in trouble again, or when nothing of them is left.
const starvedFor = 2 * retrierLook

// waitsForParks reports that a lane which could make room cannot go on before what the sink gave back of it is
// parked: the limit of parked events must not keep that waiting, or both would wait forever. It is bounded by the
// sink's window. So it is with events without a key, which need a place in the window, while it is full of events
// that are to be parked.
func (p *parking) waitsForParks() bool {
	if time.Since(p.starved) < starvedFor {
		return true
	}
	for _, la := range p.lanes {
		if la.waiting && la.parking > 0 {
			return true
		}
	}
	return false
}

// deliver turns parked rows into records for the sink. A row that can be no message any more is given up in its turn.
func (p *parking) deliver(la *parkedLane, rows []store.ParkedRow, session Session) (records []*sink.Record) {
	encoder, inflight, now := session.Encoder(), p.loop.settler.inflight, time.Now()
	var free, ds []*Delivery
	for i := range rows {
		if len(free) == 0 {
			free = inflight.Take(free)
		}
		d := free[len(free)-1]
		d.Event, d.Attempts, d.Late, d.Replay = rows[i].Event, rows[i].Attempts, rows[i].Late, rows[i].Replay
		d.parked, d.Received = true, SinceStart(now)
		encoder.Encode(d, now)
		d.Record.Probe = la.probe
		if d.Reason != nil && len(records) > 0 {
			break
		}
		free = free[:len(free)-1]
		d.Record.Source, d.Record.Topic, d.Record.Key = la.lane.Source, la.lane.Topic, la.lane.Key
		ds = append(ds, d)
		if d.Reason != nil && !d.Reason.Doubtful {
			d.Record.Partition = -1
			p.giveUp(d, la)
			break
		}
		records = append(records, &d.Record)
		if d.Record.Doomed, d.Record.Reason = d.Reason != nil, d.Reason; d.Record.Doomed {
			break // it is none yet, says the sink
		}
	}
	inflight.Admit(ds)
	return records
}
