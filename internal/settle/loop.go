package settle

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/retry"
	"github.com/cdc-relay/cdc-relay/sink"
)

// fullLook is the pause between two looks whether what waits may go on: parks, while as many events are parked as may
// be, and copies of dead letters.
const fullLook = 100 * time.Millisecond

var writeBackoff = retry.Backoff{Initial: 20 * time.Millisecond, Max: 2 * time.Second, Jitter: 0.2}

// loop commits outcomes to Postgres and only then lets the ledger count them. Journal rows, parks and dead letters go
// in transactions of their own: a dead letter that cannot be written keeps its own lane waiting and nothing else.
//
// Invariants, which hold between two steps of run:
//
//  1. Each delivery in flight has one place: with the sink, in journal.pending or one of its jobs, in lanes (held
//     behind a dead letter), in parks, or in dead (or dead.copies).
//  2. A delivery is given back to the registry, and its ledger entry counts down, only after its outcome is committed.
//  3. Parks of a lane are committed in the order of its events.
//  4. Nothing of a lane is handed to the sink while something in front of it is on its way to being parked, or a dead
//     letter.
//
// One goroutine, run, owns the state; what others hand in comes by channel, and what they write goes out by one.
type loop struct {
	settler *Settler
	pulse   Pulse
	old     func() bool // see Options.Old

	arrived  chan []*sink.Record // results of the sink
	doomed   chan []*Delivery    // events that cannot be messages
	words    chan breakerWord
	progress chan struct{} // told, without waiting, after each commit

	// Owned by run.
	sorted  uint64 // results of the sink taken in
	timer   *time.Timer
	journal journal
	dead    deadLetters
	parks   parks
	lanes   lanes
	parking parking
}

func newLoop(s *Settler, o Options) *loop {
	l := &loop{
		settler: s, pulse: o.Pulse, old: o.Old,
		arrived: make(chan []*sink.Record), doomed: make(chan []*Delivery), words: make(chan breakerWord),
		progress: make(chan struct{}, 1),
		journal:  newJournal(s.c.Limits, steadyGapOf(s.c.LatencyTarget, o.ReadsBack)),
		dead:     deadLetters{toWrite: make(chan []*Delivery), written: make(chan deadWritten)},
		parks:    parks{toWrite: make(chan []*parkChange), written: make(chan []*parkChange)},
		lanes:    lanes{engine: s.engine, byName: map[laneName]*lane{}},
	}
	l.parking = parking{loop: l, policy: o.Retry, lanes: map[laneName]*parkedLane{}}
	l.dead.copies = newCopies(l)
	return l
}

// run settles until the context ends.
func (l *loop) run(ctx context.Context) {
	var workers sync.WaitGroup
	defer workers.Wait()
	workers.Go(func() { l.collect(ctx) })
	for range journalWriters {
		workers.Go(func() { l.writeJournal(ctx) })
	}
	workers.Go(func() { l.writeDead(ctx) })
	workers.Go(func() { l.writeParks(ctx) })

	l.timer = time.NewTimer(0)
	defer l.timer.Stop()
	defer l.pulse.Waits()
	for l.step(ctx) {
	}
}

// open says what a step may take in or hand out; nil or empty: not now.
type open struct {
	arrived <-chan []*sink.Record
	doomed  <-chan []*Delivery
	journal chan<- *journalJob
	dead    chan<- []*Delivery
	letters []*Delivery // for dead
	parks   chan<- []*parkChange
	portion []*parkChange // for parks
}

// prepare finds out what the next step may do, and sets the timer to when that may change by itself.
func (l *loop) prepare() open {
	o := open{arrived: l.arrived, doomed: l.doomed}
	if len(l.journal.pending.rows) >= journalMost {
		o.arrived = nil
	}
	if wait := l.journal.wait(l.hurries); wait <= 0 {
		o.journal = l.journal.toWrite
	} else if len(l.journal.pending.rows) > 0 {
		l.timer.Reset(wait)
	}
	l.readyDead()
	if len(l.dead.waiting) >= waitingMost {
		o.doomed = nil
	}
	if o.letters = l.dead.next(); len(o.letters) > 0 {
		o.dead = l.dead.toWrite
	}
	o.portion = l.nextParks()
	if !l.parks.writing && len(o.portion) > 0 {
		o.parks = l.parks.toWrite
	}
	if len(l.parks.wanted) > 0 && len(o.portion) == 0 || l.dead.copies.waits() || len(l.dead.stuck) > 0 {
		l.timer.Reset(fullLook)
	}
	return o
}

// step does the next thing; false: the context has ended.
func (l *loop) step(ctx context.Context) bool {
	o := l.prepare()
	l.pulse.Waits()
	select {
	case records := <-o.arrived:
		l.pulse.Works()
		l.sort(records)
	case ds := <-o.doomed:
		l.dead.waiting = append(l.dead.waiting, ds...)
	case o.journal <- l.journal.pending:
		l.journal.issue()
	case o.dead <- o.letters:
		l.dead.ready = l.dead.ready[len(o.letters):]
		l.dead.writing += len(o.letters)
	case word := <-l.words:
		l.reconsider(word)
	case j := <-l.journal.written:
		l.pulse.Works()
		l.finishJournal(j)
	case w := <-l.dead.written:
		l.pulse.Works()
		l.finishDead(w)
	case o.parks <- o.portion:
		l.parks.writing = true
	case done := <-l.parks.written:
		l.parks.writing = false
		l.pulse.Works()
		l.finishParks(done)
	case word := <-l.settler.retrier.words:
		l.pulse.Works()
		l.parking.take(word)
		l.parking.advance()
	case <-l.settler.inflight.asked: // the journal hurries from now on
	case <-l.timer.C:
	case <-ctx.Done():
		return false
	}
	return true
}

// collect takes results from the sink.
func (l *loop) collect(ctx context.Context) {
	buffers := [2][]*sink.Record{make([]*sink.Record, 0, 1024), make([]*sink.Record, 0, 1024)}
	for i := 0; ; i = 1 - i { // run has done with one buffer when it takes the next
		records, err := l.settler.engine.Results(ctx, buffers[i][:0])
		if err != nil {
			return
		}
		select {
		case l.arrived <- records:
		case <-ctx.Done():
			return
		}
	}
}

// sort puts results where they belong.
func (l *loop) sort(records []*sink.Record) {
	l.settler.host.Trace(records)
	m := l.settler.meter
	m.BeginResults()
	for _, rec := range records {
		d := rec.Owner.(*Delivery)
		if d.IsCopy() {
			l.dead.copies.result(d)
			continue
		}
		switch rec.Result {
		case sink.Published:
			m.Acknowledged(rec, d.Received, d.Created, d.Dated)
			if d.dead != nil && d.dead.probe {
				l.settler.breaker.want(byProbe)
			}
			l.journal.add(d)
			if d.parked {
				l.journal.pending.retried = true
				l.parking.published(d)
			} else {
				l.lanes.published(d)
			}
		case sink.Rejected:
			d.Reason, d.dead = rec.Reason, d.dead.tried()
			l.rejected(d)
		case sink.Held:
			switch {
			case d.parked || !l.lanes.has(d):
				l.parking.held(d)
			case l.lanes.diverted(d):
				l.setAside(d)
			default:
				l.lanes.held(d)
			}
		default:
			panic("settle: the sink gave a record back without a result")
		}
	}
	m.EndResults()
	l.sorted += uint64(len(records))
	l.noteParked()
	l.lanes.advance()
	l.parking.advance()
}

// rejected decides what becomes of an event that was definitely refused: dead, or parked for another attempt with
// what is behind it.
func (l *loop) rejected(d *Delivery) {
	if d.parked {
		l.parking.rejected(d)
		return
	}
	attempts, pause, again := l.parking.verdict(d)
	if !again {
		l.deadLetter(d)
		return
	}
	followers := l.lanes.abandon(d)
	l.parking.park(d, outbox.Transient, attempts, pause)
	for _, f := range followers {
		l.parking.held(f)
	}
}

// insist repeats a write until it is committed; false: the context ended first. Going on without it would lose
// events, and nothing is gained by giving up: the journal's transactions are short and harmless to repeat.
func (l *loop) insist(ctx context.Context, what string, write func() error) bool {
	for attempt := 1; ; attempt++ {
		session := l.settler.host.Owner()
		err := write()
		if err == nil {
			l.settler.host.Recorded(what)
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		heed(session, err)
		if l.settler.host.CannotRecord(what, err) {
			l.settler.log.Warn().Err(err).Str("write", what).Int("attempt", attempt).
				Msg("cannot record outcomes; confirming nothing until it can")
		}
		select {
		case <-time.After(writeBackoff.Delay(attempt, rand.Float64())):
		case <-ctx.Done():
			return false
		}
	}
}

// release gives a delivery back whose outcome is committed.
func (l *loop) release(d *Delivery) {
	if d.Record.Result != sink.None { // else the sink never had it
		l.settler.engine.Settled([]*sink.Record{&d.Record})
	}
	l.settler.inflight.finish([]*Delivery{d})
}
