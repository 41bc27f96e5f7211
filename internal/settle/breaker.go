package settle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/retry"
)

// breaker halts the relay when more events become dead letters within dlq.breaker.window than dlq.breaker.count, and
// more than the share dlq.breaker.ratio of all: that is a bad deployment, not bad luck, and must not be poured into
// the table.
//
// While it is open no event becomes a dead letter: what would is kept in memory, with its lane, unconfirmed; the
// intake stands still, and so do retries. The session goes on and keeps the slot. A person ends that (see Resume), or
// an event that was refused and is accepted at a later try; one is tried at a time, from 2 s to 30 s apart.
//
// That it is open is committed, so that a process that is killed and started again does not store another
// dlq.breaker.count dead letters first. After such a start it is half open: the stream is read, and the first event
// that would become a dead letter opens it again, while a window of streaming without one closes it.
type breaker struct {
	settler *Settler
	limits  config.Breaker
	apart   []string                      // codes that it does not count
	shut    atomic.Pointer[chan struct{}] // closed when the breaker is; nil when it is not open
	news    chan struct{}                 // there is something for run to do

	mu        sync.Mutex // guards what follows
	tally     tally
	loaded    bool
	open      bool
	halfOpen  bool
	halt      *halt.Error
	unsaved   bool // open, and not committed
	wantClose closing
	pardoned  int64 // what was committed until then may become dead letters, Unix microseconds by the server's clock
}

// closing says what ends the halt.
type closing uint8

const (
	notYet    closing = iota
	byProbe           // an event that was refused was accepted: the others are tried again, and count
	byPerson          // what waits may become dead letters, and does not count
	bySilence         // half open for a window, and there was no dead letter
)

const (
	// breakerLook is how often a breaker that is not closed looks around.
	breakerLook = time.Second
	// breakerPatience is how long a stop waits for the outcome of what was sent while the breaker is open.
	breakerPatience = 5 * time.Second
)

// probes are the pauses between two tries of an event that waits for the breaker.
var probes = retry.Backoff{Initial: 2 * time.Second, Max: 30 * time.Second, Jitter: 0.2}

func newBreaker(s *Settler) *breaker {
	limits, apart := s.c.DLQ.Breaker, []string{outbox.TopicLimit}
	if !limits.CountInvalid {
		apart = append(apart, outbox.InvalidCodes...)
	}
	return &breaker{
		settler: s, limits: limits, apart: apart, news: make(chan struct{}, 1),
		tally: tally{window: time.Duration(limits.Window)},
	}
}

// LoadBreaker takes in what was committed, by this process or another. A session does it before it sends anything.
func (s *Settler) LoadBreaker(ctx context.Context) error {
	b := s.breaker
	known, err := s.tables.Breaker(ctx, time.Duration(b.limits.Window), b.apart)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.loaded {
		return nil // this process knows better: it has counted what it has let pass and is not written yet
	}
	b.loaded = true
	b.halfOpen = known.Open
	b.tally.reset()
	b.tally.add(time.Now(), known.Dead, known.Dead+known.Published)
	if known.Open {
		s.log.Warn().Str("reason", known.Said).
			Msg("dlq.breaker was open: the first event that would become a dead letter halts the relay again")
		signal(b.news)
	}
	return nil
}

// BreakerClosed is closed when the breaker is; nil when it is not open.
func (s *Settler) BreakerClosed() <-chan struct{} {
	if shut := s.breaker.shut.Load(); shut != nil {
		return *shut
	}
	return nil
}

// AwaitBreaker returns when the breaker is not open.
func (s *Settler) AwaitBreaker(ctx context.Context) error {
	for closed := s.BreakerClosed(); closed != nil; closed = s.BreakerClosed() {
		select {
		case <-closed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// AwaitOpenBreaker returns when the breaker has been open for some time, as BreakerPatience has it, or ctx ends.
func (s *Settler) AwaitOpenBreaker(ctx context.Context) {
	for {
		closed := s.BreakerClosed()
		if closed == nil {
			if !sleep(ctx, diverterTick) {
				return
			}
			continue
		}
		select {
		case <-closed:
		case <-time.After(breakerPatience):
			return
		case <-ctx.Done():
			return
		}
	}
}

// BreakerPatience ends some time after the call while the breaker is open: what else was sent is recorded by then,
// and what waits for the breaker will not be. Nil: it is not open.
func (s *Settler) BreakerPatience() <-chan time.Time {
	if s.BreakerClosed() == nil {
		return nil
	}
	return time.After(breakerPatience)
}

// Resume closes the breaker because a person wants the relay to go on: what waits becomes dead letters, and so may all
// else that was committed until then, by the server's clock, as long as this process lives.
func (s *Settler) Resume(until time.Time) {
	b := s.breaker
	b.mu.Lock()
	if !until.IsZero() {
		b.pardoned = max(b.pardoned, until.UnixMicro())
	}
	b.mu.Unlock()
	b.want(byPerson)
}

// WithBreaker calls f with the halt that the breaker is the cause of, nil when it is not open. The breaker neither
// opens nor closes in the meantime.
func (s *Settler) WithBreaker(f func(tripped *halt.Error)) {
	b := s.breaker
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open {
		f(b.halt)
		return
	}
	f(nil)
}

// published counts events that are journaled.
func (b *breaker) published(n int) {
	b.mu.Lock()
	b.tally.add(time.Now(), 0, int64(n))
	b.mu.Unlock()
}

// pardons reports whether a person has let the event pass with all that was committed by then. The lock is held.
func (b *breaker) pardons(d *Delivery) bool {
	at := d.Committed
	if at == 0 && d.Dated { // it was read from the table
		at = d.Created
	}
	return at != 0 && at <= b.pardoned
}

// mayDeadLetter reports whether the event may become a dead letter now, and counts it, unless its code is apart. One
// topic too many concerns no other topic: a stop of all of them would be the flood's doing.
func (b *breaker) mayDeadLetter(d *Delivery) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.open:
		return false
	case d.mark().pardoned, b.pardons(d), slices.Contains(b.apart, d.Reason.Code):
		return true
	case b.halfOpen, b.tally.tooMany(time.Now(), b.limits):
		b.trip(d)
		return false
	}
	b.tally.add(time.Now(), 1, 1)
	return true
}

// trip opens the breaker. The lock is held.
func (b *breaker) trip(d *Delivery) {
	dead, all := b.tally.sum(time.Now())
	b.open, b.halfOpen, b.unsaved = true, false, true
	if b.wantClose != byPerson { // who has asked for it already is heard
		b.wantClose = notYet
	}
	b.halt = &halt.Error{Code: halt.Flood,
		Reason: fmt.Sprintf("%d of %d events died within %v and more are to: more than dlq.breaker.count = %d, and than "+
			"the share dlq.breaker.ratio = %v; the next one: %s: %.300s",
			dead, all, time.Duration(b.limits.Window), b.limits.Count, b.limits.Ratio, d.Reason.Code, d.Reason.Text),
		Risk: "no more events become dead letters; " + halt.RiskWAL,
		Remedy: "fix what makes them bad (a deployment of the producer, the topic's limits, or this configuration, which " +
			"needs a restart): the relay goes on when an event that was refused is accepted; to let them die run " +
			"cdc-relay resume --until-now, and newer ones count again"}
	shut := make(chan struct{})
	b.shut.Store(&shut)
	b.settler.host.Trip(b.halt)
	signal(b.news)
}

// want asks for the breaker to be closed.
func (b *breaker) want(why closing) {
	b.mu.Lock()
	if b.open || b.halfOpen {
		b.wantClose = max(b.wantClose, why)
		signal(b.news)
	}
	b.mu.Unlock()
}

// run commits what the breaker does, and probes.
func (b *breaker) run(ctx context.Context) {
	var attempt int
	var probeAt, calmSince time.Time
	for {
		b.mu.Lock()
		open, halfOpen, unsaved, why := b.open, b.halfOpen, b.unsaved, b.wantClose
		text := ""
		if open {
			text = b.halt.Reason
		}
		b.mu.Unlock()
		busy := open || halfOpen
		look := time.NewTimer(breakerLook)
		if !busy {
			look.Stop()
			attempt, calmSince = 0, time.Time{}
		}
		select {
		case <-look.C:
		case <-b.news:
		case <-ctx.Done():
			return
		}
		look.Stop()
		switch {
		case unsaved: // also when the session has ended: the epoch is ours still, or the fence says so
			b.commit(ctx, func() error { return b.settler.tables.OpenBreaker(ctx, text) }, func() { b.unsaved = false })
			attempt, probeAt = 1, time.Now().Add(probes.Delay(1, rand.Float64()))
		case b.settler.host.Owner() == nil: // only the process that holds the slot goes on
		case why != notYet && busy:
			b.commit(ctx, func() error { return b.settler.tables.CloseBreaker(ctx) }, func() { b.close(ctx, why) })
		case open && time.Now().After(probeAt):
			attempt++
			probeAt = time.Now().Add(probes.Delay(attempt, rand.Float64()))
			b.tellLoop(ctx, breakerWord{probe: true})
		case halfOpen && b.settler.mayRetry() == nil:
			calmSince = time.Time{}
		case halfOpen && calmSince.IsZero():
			calmSince = time.Now()
		case halfOpen && time.Since(calmSince) > time.Duration(b.limits.Window):
			b.want(bySilence)
		}
	}
}

// commit writes and, if that succeeded, takes it in.
func (b *breaker) commit(ctx context.Context, write func() error, done func()) {
	if !b.settler.loop.insist(ctx, "breaker", write) {
		return
	}
	b.mu.Lock()
	done()
	b.mu.Unlock()
	signal(b.news)
}

// close ends the halt, in memory. The lock is held.
func (b *breaker) close(ctx context.Context, why closing) {
	wasOpen, halted := b.open, b.halt
	// Not saved as open any more either: it may have opened since it was committed that it is closed.
	b.open, b.halfOpen, b.unsaved, b.wantClose, b.halt = false, false, false, notYet, nil
	b.tally.reset()
	by := [...]string{"", "an event that was accepted", "a person", "a window without a dead letter"}[why]
	b.settler.log.Info().Str("by", by).Msg("dlq.breaker is closed")
	if !wasOpen {
		return
	}
	b.settler.host.Lift(halted)
	shut := b.shut.Swap(nil)
	b.mu.Unlock()
	b.tellLoop(ctx, breakerWord{pardon: why == byPerson}) // before anything is taken in: what waits goes first
	b.mu.Lock()
	close(*shut)
}

// breakerWord is the breaker's message to the loop: retry one event that waits for it, or all of them.
type breakerWord struct{ probe, pardon bool }

func (b *breaker) tellLoop(ctx context.Context, w breakerWord) {
	select {
	case b.settler.loop.words <- w:
	case <-ctx.Done():
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
