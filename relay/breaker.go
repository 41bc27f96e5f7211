package relay

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay/internal/halt"
)

// breaker halts the relay when more events die within dlq.breaker.window than dlq.breaker.count, and more than the share
// dlq.breaker.ratio of all: that is a bad deployment, not bad luck, and must not be poured into the dead letters.
//
// While it is open nothing dies: what would is kept in memory, with its lane, unconfirmed; the intake stands still, and
// so do retries. The session goes on and keeps the slot. A person ends that (see resumed), or an event that was refused
// and is accepted at a later try; one is tried at a time, from 2 s to 30 s apart.
//
// That it is open is committed, so that a process that is killed and started again does not let another dlq.breaker.count
// events die first. After such a start it is half open: the stream is read, and the first death opens it again, while a
// window of streaming without one closes it.
type breaker struct {
	r      *Relay
	term   *term
	limits config.Breaker
	shut   atomic.Pointer[chan struct{}] // closed when the breaker is; nil when it is not open
	news   chan struct{}                 // there is something for run to do

	mu        sync.Mutex // guards what follows
	tally     tally
	loaded    bool
	open      bool
	halfOpen  bool
	halt      *halt.Error
	was       Role // before it opened
	unsaved   bool // open, and not committed
	wantClose closing
}

// closing says what ends the halt.
type closing uint8

const (
	notYet    closing = iota
	byProbe           // an event that was refused was accepted: the others are tried again, and count
	byPerson          // what waits may die, and does not count
	bySilence         // half open for a window, and nothing died
)

// breakerLook is how often a breaker that is not closed looks around.
const breakerLook = time.Second

func newBreaker(t *term) *breaker {
	return &breaker{r: t.r, term: t, limits: t.r.c.DLQ.Breaker, news: make(chan struct{}, 1), tally: tally{window: time.Duration(t.r.c.DLQ.Breaker.Window)}}
}

// load takes in what was committed, by this process or another.
func (b *breaker) load(ctx context.Context) error {
	known, err := b.r.store.Breaker(ctx, time.Duration(b.limits.Window))
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.loaded {
		return nil // this process knows better: it has counted what was let die and is not written yet
	}
	b.loaded = true
	b.halfOpen = known.Open
	b.tally.reset()
	b.tally.add(time.Now(), known.Dead, known.Dead+known.Published)
	if known.Open {
		b.r.log.Warn().Str("reason", known.Said).Msg("dlq.breaker was open: the first event that would die halts the relay again")
		signal(b.news)
	}
	return nil
}

// published counts events that are journaled.
func (b *breaker) published(n int) {
	b.mu.Lock()
	b.tally.add(time.Now(), 0, int64(n))
	b.mu.Unlock()
}

// mayDie says whether the event may become a dead letter now, and counts it.
func (b *breaker) mayDie(d *delivery) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.open:
		return false
	case d.dying().pardoned:
		return true
	case b.halfOpen, b.tally.tooMany(time.Now(), b.limits):
		b.trip(d)
		return false
	}
	b.tally.add(time.Now(), 1, 1)
	return true
}

// trip opens the breaker. The lock is held.
func (b *breaker) trip(d *delivery) {
	dead, all := b.tally.sum(time.Now())
	b.open, b.halfOpen, b.unsaved = true, false, true
	if b.wantClose != byPerson { // who has asked for it already is heard
		b.wantClose = notYet
	}
	b.halt = &halt.Error{Code: halt.Flood,
		Reason: fmt.Sprintf("%d of %d events died within %v and more are to: more than dlq.breaker.count = %d, and than the share dlq.breaker.ratio = %v; the next one: %s: %.300s",
			dead, all, time.Duration(b.limits.Window), b.limits.Count, b.limits.Ratio, d.reason.Code, d.reason.Text),
		Risk: "nothing is lost and nothing more dies; events wait, and Postgres keeps WAL for the slot until they are relayed",
		Remedy: "repair what makes them bad (a deployment of the producer, the topic's limits, or this configuration, which needs a restart): the relay goes on when an event that was refused is accepted; " +
			"to let them die run cdc-relay resume"}
	shut := make(chan struct{})
	b.shut.Store(&shut)
	b.was = b.r.health.role()
	b.r.halted(b.halt)
	if s := b.term.session.Load(); s != nil && b.r.c.OnHalt == config.OnHaltExit {
		s.fail(b.halt)
	}
	signal(b.news)
}

// enter is health.enter for a role in which events flow: not while the breaker is open.
func (b *breaker) enter(role Role) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open {
		b.was = role
		b.r.health.took(role)
		b.r.halted(b.halt)
		return
	}
	b.r.health.enter(role)
}

// closed is closed when the breaker is; nil when it is not open.
func (b *breaker) closed() <-chan struct{} {
	if shut := b.shut.Load(); shut != nil {
		return *shut
	}
	return nil
}

// wait returns when the breaker is not open.
func (b *breaker) wait(ctx context.Context) error {
	for closed := b.closed(); closed != nil; closed = b.closed() {
		select {
		case <-closed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// patience ends some time after the call while the breaker is open: what else was sent is recorded by then, and what
// would die will not.
func (b *breaker) patience() <-chan time.Time {
	if b.closed() == nil {
		return nil
	}
	return time.After(refusedPatience)
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
		look := time.NewTimer(breakerLook)
		if !open && !halfOpen {
			look.Stop()
			attempt, calmSince = 0, time.Time{}
		}
		select {
		case <-look.C:
		case <-b.news:
		case <-ctx.Done():
			look.Stop()
			return
		}
		look.Stop()
		switch {
		case unsaved: // also when the session has ended: the epoch is ours still, or the fence says so
			b.commit(ctx, func() error { return b.r.store.OpenBreaker(ctx, text) }, func() { b.unsaved = false })
			attempt, probeAt = 1, time.Now().Add(haltProbe.Delay(1, random()))
		case b.term.owner() == nil: // only the process that holds the slot goes on
		case why != notYet && (open || halfOpen):
			b.commit(ctx, func() error { return b.r.store.CloseBreaker(ctx) }, func() { b.close(ctx, why) })
		case open && time.Now().After(probeAt):
			attempt++
			probeAt = time.Now().Add(haltProbe.Delay(attempt, random()))
			b.tellSettler(ctx, breakerWord{probe: true})
		case halfOpen && b.term.mayRetry() == nil:
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
	if !b.term.settler.insist(ctx, "breaker", write) {
		return
	}
	b.mu.Lock()
	done()
	b.mu.Unlock()
	signal(b.news)
}

// close ends the halt, in memory. The lock is held.
func (b *breaker) close(ctx context.Context, why closing) {
	wasOpen, halt := b.open, b.halt
	// Not saved as open any more either: it may have opened since it was committed that it is closed.
	b.open, b.halfOpen, b.unsaved, b.wantClose, b.halt = false, false, false, notYet, nil
	b.tally.reset()
	b.r.log.Info().Str("by", [...]string{"", "an event that was accepted", "a person", "a window without a death"}[why]).Msg("dlq.breaker is closed")
	if !wasOpen {
		return
	}
	if b.term.session.Load() != nil && b.r.health.haltedBy(halt) { // else a session begins, or will
		b.r.health.enter(b.was)
	}
	shut := b.shut.Swap(nil)
	b.mu.Unlock()
	b.tellSettler(ctx, breakerWord{pardon: why == byPerson}) // before the intake opens: what waits goes first
	b.mu.Lock()
	close(*shut)
}

// breakerWord is what the breaker tells the settler: to try one event that waits for its death again, or all of them.
type breakerWord struct{ probe, pardon bool }

func (b *breaker) tellSettler(ctx context.Context, w breakerWord) {
	select {
	case b.term.settler.breakerWords <- w:
	case <-ctx.Done():
	}
}

// resumed is told that a person wants the relay to go on.
func (t *term) resumed() { t.breaker.want(byPerson) }

// tally counts events and deaths of a window that moves in steps of a sixtieth.
type tally struct {
	window    time.Duration
	dead, all [tallySteps]int64
	step      int64 // that counts now, since the zero time
}

const tallySteps = 60

func (t *tally) reset() { *t = tally{window: t.window} }

func (t *tally) add(now time.Time, dead, all int64) {
	t.move(now)
	t.dead[t.step%tallySteps] += dead
	t.all[t.step%tallySteps] += all
}

func (t *tally) move(now time.Time) {
	step := now.UnixNano() / max(int64(t.window)/tallySteps, 1)
	for n := max(t.step+1, step-tallySteps+1); n <= step; n++ {
		t.dead[n%tallySteps], t.all[n%tallySteps] = 0, 0
	}
	t.step = max(t.step, step)
}

func (t *tally) sum(now time.Time) (dead, all int64) {
	t.move(now)
	for i := range t.dead {
		dead, all = dead+t.dead[i], all+t.all[i]
	}
	return dead, all
}

// tooMany says whether one more death is one too many.
func (t *tally) tooMany(now time.Time, limits config.Breaker) bool {
	dead, all := t.sum(now)
	return dead+1 > int64(limits.Count) && float64(dead+1) > limits.Ratio*float64(all+1)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
