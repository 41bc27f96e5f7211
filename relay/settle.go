package relay

import (
	"context"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/retry"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/store"
)

const (
	// settleGap is the least time between two journal transactions while events keep coming. Confirming a few
	// milliseconds later costs nobody anything; a commit per event would cost the database a flush each.
	settleGap = 25 * time.Millisecond
	// settleEarly is how many outcomes do not wait for the gap; a share of what may be unrecorded or in flight, if that is
	// less, or waiting would hold up the sink. A COPY costs the server as much by itself as a thousand rows.
	settleEarly = 4000
	settleShare = 4
	// settleBeside is how many times as many, or as long, outcomes wait while others are being journaled.
	settleBeside = 2
	// settleMost bounds one journal transaction.
	settleMost = 10_000
	// dyingMost is how many events that cannot be messages may wait for their dead letters: they take no place in the
	// sink's window, and the table may refuse them for as long as nobody repairs it.
	dyingMost = 1000
	// journalWriters is how many journal transactions run at once.
	journalWriters = 2
	// fullLook is the pause between two looks whether parks may go on while as many events are parked as may be.
	fullLook = 100 * time.Millisecond
)

var settleBackoff = retry.Backoff{Initial: 20 * time.Millisecond, Max: 2 * time.Second, Jitter: 0.2}

// settler commits outcomes to Postgres and only then lets the ledger count them. Journal rows and dead letters go in
// transactions of their own: a dead letter that cannot be written keeps its own lane waiting and nothing else.
//
// One goroutine, run, owns its state; what others hand in comes by channel.
type settler struct {
	r    *Relay
	term *term

	arrived  chan []*sink.Record // results of the sink
	locals   chan []*delivery    // events that cannot be messages
	journals chan *journalJob    // to the journal writers
	deaths   chan *delivery      // to the dead-letter writer
	written  chan *journalJob    // committed
	buried   chan *delivery      // committed
	asides   chan []*aside       // to the writer of parked events
	asided   chan []*aside       // committed

	breakerWords chan breakerWord

	// Owned by run.
	pending  *journalJob
	lastJob  time.Time
	early    int         // see settleEarly
	dying    []*delivery // to become dead letters, if the breaker allows
	copies   copies      // of those, to dlq.topic
	graves   []*delivery // waiting for the dead-letter writer
	lanes    lanes
	parks    []*aside // events that are to be parked, in order
	notes    []*aside // failed attempts of parked events that are to be noted
	aside    bool     // a portion of either is with the writer
	sorted   uint64   // results of the sink taken in
	parking  parking
	jobs     []*journalJob // for reuse
	frontier frontier
	progress chan struct{} // told, without waiting, after each commit
}

// journalJob is what one journal transaction records.
type journalJob struct {
	rows       []store.Published
	deliveries []*delivery
	records    []*sink.Record
	retried    bool        // some of them were parked
	ends       []offsetRun // see frontier
	committed  bool
}

func newSettler(t *term) *settler {
	s := &settler{
		r: t.r, term: t, arrived: make(chan []*sink.Record), locals: make(chan []*delivery),
		journals: make(chan *journalJob), deaths: make(chan *delivery),
		written: make(chan *journalJob), buried: make(chan *delivery),
		asides: make(chan []*aside), asided: make(chan []*aside), breakerWords: make(chan breakerWord),
		progress: make(chan struct{}, 1),
		early:    max(1, min(settleEarly, t.r.c.Limits.MaxUnrecorded/settleShare, t.r.c.Limits.InFlightEvents/settleShare)),
	}
	s.lanes = lanes{engine: t.engine, byName: map[string]*lane{}}
	s.parking = parking{s: s, policy: retryPolicy(t.r.c.Retry), lanes: map[string]*parkedLane{}}
	s.copies = newCopies(s)
	s.pending = s.newJob()
	return s
}

// run settles until the context ends. What is unsettled then is found by the next start's look-ups.
func (s *settler) run(ctx context.Context) {
	var workers sync.WaitGroup
	defer workers.Wait()
	workers.Go(func() { s.collect(ctx) })
	for range journalWriters {
		workers.Go(func() { s.writeJournal(ctx) })
	}
	workers.Go(func() { s.writeDeaths(ctx) })
	workers.Go(func() { s.writeAsides(ctx) })

	timer := time.NewTimer(0)
	defer timer.Stop()
	pulse := &s.r.pulses.settling
	defer pulse.waits()
	for {
		arrived, local, journals, deaths := s.arrived, s.locals, s.journals, s.deaths
		if len(s.pending.rows) >= settleMost {
			arrived = nil
		}
		if wait := s.wait(); wait > 0 {
			journals = nil
			if wait <= settleGap*settleBeside {
				timer.Reset(wait)
			}
		}
		s.bury()
		if len(s.dying) >= dyingMost {
			local = nil
		}
		var dead *delivery
		if len(s.graves) > 0 {
			dead = s.graves[0]
		} else {
			deaths = nil
		}
		asides, portion := s.asides, s.nextAsides()
		if s.aside || len(portion) == 0 {
			asides = nil
		}
		if len(s.parks) > 0 && len(portion) == 0 || s.copies.waits() {
			timer.Reset(fullLook)
		}
		pulse.waits()
		select {
		case records := <-arrived:
			pulse.works()
			s.sort(records)
		case ds := <-local:
			s.dying = append(s.dying, ds...)
		case journals <- s.pending:
			s.frontier.issue(s.pending)
			s.pending, s.lastJob = s.newJob(), time.Now()
		case deaths <- dead:
			s.graves = s.graves[1:]
		case word := <-s.breakerWords:
			s.reconsider(word)
		case j := <-s.written:
			pulse.works()
			s.finishJournal(j)
		case d := <-s.buried:
			pulse.works()
			s.finishDeath(d)
		case asides <- portion:
			s.aside = true
		case done := <-s.asided:
			s.aside = false
			pulse.works()
			s.finishAsides(done)
		case word := <-s.term.retrier.words:
			pulse.works()
			s.parking.take(word)
			s.parking.advance()
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// wait is how long the pending rows may still wait for company; an hour when there are none. While a journal transaction is
// under way they wait longer: one after it costs the server less than one beside it, unless it is slow.
func (s *settler) wait() time.Duration {
	early, gap := s.early, settleGap
	if len(s.frontier.issued) > 0 {
		early, gap = early*settleBeside, gap*settleBeside
	}
	switch n := len(s.pending.rows); {
	case n == 0:
		return time.Hour
	case n >= early:
		return 0
	}
	return gap - time.Since(s.lastJob)
}

// collect takes results from the sink.
func (s *settler) collect(ctx context.Context) {
	buffers := [2][]*sink.Record{make([]*sink.Record, 0, 1024), make([]*sink.Record, 0, 1024)}
	for i := 0; ; i = 1 - i { // run has done with one buffer when it takes the next
		records, err := s.term.engine.Results(ctx, buffers[i][:0])
		if err != nil {
			return
		}
		select {
		case s.arrived <- records:
		case <-ctx.Done():
			return
		}
	}
}

// sort puts results where they belong.
func (s *settler) sort(records []*sink.Record) {
	s.r.trace(records)
	m := s.r.metrics
	m.beginResults()
	for _, rec := range records {
		d := rec.Owner.(*delivery)
		if d.death != nil && d.death.copyOf != nil {
			s.copies.result(d)
			continue
		}
		switch rec.Result {
		case sink.Published:
			m.acknowledged(rec, d)
			if d.death != nil && d.death.probe {
				s.term.breaker.want(byProbe)
			}
			s.pending.rows = append(s.pending.rows, store.Published{ID: d.event.ID, Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset})
			s.pending.deliveries = append(s.pending.deliveries, d)
			s.pending.records = append(s.pending.records, rec)
			s.frontier.note(s.pending, rec)
			if d.parked {
				s.pending.retried = true
				s.parking.published(d)
			} else {
				s.lanes.published(d)
			}
		case sink.Rejected:
			d.reason, d.death = rec.Reason, d.death.tried()
			s.rejected(d)
		case sink.Held:
			if !d.parked && s.lanes.has(d) {
				s.lanes.held(d)
			} else {
				s.parking.held(d)
			}
		default:
			panic("relay: the sink gave a record back without a result")
		}
	}
	m.endResults()
	s.sorted += uint64(len(records))
	s.noteAside()
	s.lanes.advance()
	s.parking.advance()
}

// rejected decides what becomes of an event that was definitely refused: dead, or parked for another attempt with what is
// behind it.
func (s *settler) rejected(d *delivery) {
	if d.parked {
		s.parking.rejected(d)
		return
	}
	attempts, pause, again := s.parking.verdict(d)
	if !again {
		s.die(d)
		return
	}
	followers := s.lanes.abandon(d)
	s.parking.park(d, outbox.Transient, attempts, pause)
	for _, f := range followers {
		s.parking.held(f)
	}
}

// writeJournal commits journal jobs, each for as long as it takes: the window bounds what waits behind it.
func (s *settler) writeJournal(ctx context.Context) {
	for {
		var j *journalJob
		select {
		case j = <-s.journals:
		case <-ctx.Done():
			return
		}
		begun := time.Now()
		if !s.insist(ctx, "journal", func() error { return s.commitJournal(ctx, j) }) {
			return
		}
		s.r.metrics.settled(len(j.rows), time.Since(begun))
		select {
		case s.written <- j:
		case <-ctx.Done():
			return
		}
	}
}

func (s *settler) commitJournal(ctx context.Context, j *journalJob) error {
	if j.retried {
		return s.r.store.SettleRetried(ctx, j.rows)
	}
	return s.r.store.Settle(ctx, j.rows, nil)
}

// insist repeats a write until it is committed; false: the context ended first. Going on without it would lose events,
// and nothing is gained by giving up: the journal's transactions are short and harmless to repeat.
func (s *settler) insist(ctx context.Context, what string, write func() error) bool {
	for attempt := 1; ; attempt++ {
		session := s.term.owner()
		err := write()
		if err == nil {
			s.r.health.settled(what)
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		session.heed(err)
		if s.r.health.settleTrouble(what, err) {
			s.r.log.Warn().Err(err).Str("write", what).Int("attempt", attempt).Msg("cannot record outcomes; nothing is confirmed meanwhile")
		}
		select {
		case <-time.After(settleBackoff.Delay(attempt, random())):
		case <-ctx.Done():
			return false
		}
	}
}

func (s *settler) finishJournal(j *journalJob) {
	s.term.breaker.published(len(j.rows))
	s.term.engine.SettledThen(j.records, func() {
		if j.retried {
			for _, d := range j.deliveries {
				if d.parked {
					s.parking.journaled(d)
				}
			}
		}
		s.term.inflight.finish(j.deliveries)
	})
	clear(j.rows)
	clear(j.deliveries)
	clear(j.records)
	j.rows, j.deliveries, j.records = j.rows[:0], j.deliveries[:0], j.records[:0]
	for _, passed := range s.frontier.written(j) {
		passed.ends, passed.committed, passed.retried = passed.ends[:0], false, false
		s.jobs = append(s.jobs, passed)
	}
	s.lanes.advance()
	s.parking.advance()
	s.told()
}

// newJob is an empty job. There are as many as are with the writers, and one, so all are kept.
func (s *settler) newJob() *journalJob {
	n := len(s.jobs)
	if n == 0 {
		return new(journalJob)
	}
	j := s.jobs[n-1]
	s.jobs = s.jobs[:n-1]
	return j
}

func (s *settler) told() {
	select {
	case s.progress <- struct{}{}:
	default:
	}
}
