package relay

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/store"
)

const (
	// unrecordedMost bounds the ids that one proof is about; most of them are events on their way.
	unrecordedMost = 10_000
	// latePage is how many missed rows are published at once.
	latePage = 500
	// horizonMargin is by how much created_at may be before the begin of its transaction: clocks of the application that
	// are further behind the database's are left to the sweep.
	horizonMargin = time.Minute
	// sweepEvery is how often the whole table is looked at.
	sweepEvery = 24 * time.Hour
	// sweepBlocks is how much of the table one look of a sweep reads: 8 MiB.
	sweepBlocks = 1024
	// A round rests for roundRest times as long as it has read, if that is more than reconcile.interval, and a sweep for
	// sweepRest times as long after each of its looks: so they take at most a twentieth and a fifth of the time.
	roundRest = 19
	sweepRest = 4
	// reconcilerLook is the pause between two looks whether there is something to do.
	reconcilerLook = 500 * time.Millisecond
	// reconcilerAgain is the pause after a round that Postgres, or the end of a session, cut off.
	reconcilerAgain = 5 * time.Second
	// markLook is the pause between two looks whether the stream has come as far as a proof needs.
	markLook = 20 * time.Millisecond

	neverSaved = math.MaxUint64
)

// reconciler proves, round by round, that no committed row was missed, and publishes it if one was. A round:
//
//  1. ids of rows that nothing has recorded, of the range since the horizon, or of the whole table;
//  2. then a mark in the WAL;
//  3. wait until the stream has delivered the mark and everything up to its commit is confirmed, that is, recorded;
//  4. look at the ids again: a row that is there and not recorded was never delivered. It is published now, marked as late.
//
// A row that was seen before the mark was written committed before it, so it was delivered before it, if at all, and by
// (3) is recorded. That holds for long, prepared and asynchronous commits: it depends on no clock and no order of ids.
type reconciler struct {
	r     *Relay
	term  *term // owned by run: the one that it works for
	asked chan *reconcileOrder
	soon  atomic.Bool // the whole table is to be looked at, though its time has not come

	tables atomic.Pointer[[]uint32] // OIDs of the outbox and its partitions, as last seen

	clean atomic.Int64 // when the last round began that found nothing missing, Unix nanoseconds; 0: none

	// Owned by run, of which a term has one.
	order   *reconcileOrder // taken and not done yet
	session *session        // for which what follows was read
	state   store.AuditState
	horizon horizon
	due     time.Time // of the next round, or of the next sweep where only sweeps can be
	settled uint64    // events settled when this process saved the horizon; neverSaved: it has not yet
	sweep   *sweep    // that is under way
	missed  int       // found by the last round
}

// reconcileOrder is what a person asks for: the whole table, at once.
type reconcileOrder struct {
	gone <-chan struct{} // closed: nobody waits for it any more
	done chan struct{}
	ReconcileReport
	err error
}

// ReconcileReport is what a look at the whole table found.
type ReconcileReport struct {
	Unrecorded int           `json:"unrecorded"` // rows that were not recorded when they were seen; most were on their way
	Missed     int           `json:"missed"`     // of those, rows that the stream has never delivered; they are published now
	Took       time.Duration `json:"took_ns"`
	// CaughtUp is how many rows this process has published from the table before it streamed, since they are older than the slot, or the
	// slot had passed them.
	CaughtUp int `json:"caught_up,omitempty"`
}

// dropped says that nobody waits for the order; a nil one is not.
func (o *reconcileOrder) dropped() bool {
	if o == nil {
		return false
	}
	select {
	case <-o.gone:
		return true
	default:
		return false
	}
}

func newReconciler(r *Relay) *reconciler {
	return &reconciler{r: r, asked: make(chan *reconcileOrder), settled: neverSaved}
}

// Reconcile looks at the whole table at once and publishes what the stream has missed. It waits until this relay streams,
// and until everything that was committed before the look is recorded.
func (r *Relay) Reconcile(ctx context.Context) (ReconcileReport, error) {
	order := &reconcileOrder{gone: ctx.Done(), done: make(chan struct{})}
	select {
	case r.reconciler.asked <- order:
	case <-ctx.Done():
		return ReconcileReport{}, context.Cause(ctx)
	}
	select {
	case <-order.done:
		order.CaughtUp = int(r.seen.caughtUp.Load())
		return order.ReconcileReport, order.err
	case <-ctx.Done():
		return ReconcileReport{}, context.Cause(ctx)
	}
}

func (c *reconciler) run(ctx context.Context, t *term) {
	c.term = t
	timer := time.NewTimer(reconcilerLook)
	defer timer.Stop()
	for {
		asked := c.asked
		if c.order != nil {
			asked = nil
		}
		select {
		case c.order = <-asked:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		timer.Reset(min(reconcilerLook, time.Duration(c.r.c.Reconcile.Interval)))
		s := c.term.mayReconcile()
		if s == nil {
			continue
		}
		var err error
		if c.order.dropped() {
			c.order = nil
		}
		if c.order != nil {
			if err = c.all(ctx, s, c.order); err == nil || !passes(err) && ctx.Err() == nil {
				c.order.err = err
				close(c.order.done)
				c.order = nil
			}
		} else {
			err = c.step(ctx, s)
		}
		if err != nil && ctx.Err() == nil {
			s.heed(err)
			c.failed(err)
			timer.Reset(reconcilerAgain)
		}
	}
}

// failed notes a round that was cut off. It proves nothing, and the age of the last clean one tells.
func (c *reconciler) failed(err error) {
	c.session = nil
	c.drop()
	if passes(err) {
		c.r.log.Debug().Err(err).Msg("a reconcile round was cut off; another one follows")
		return
	}
	c.r.log.Warn().Err(err).Msg("cannot reconcile: whether rows were missed is not known since the last clean round")
}

// passes says that the same round may succeed later, without anybody doing anything.
func passes(err error) bool { return errors.Is(err, errSessionOver) || store.IsTransient(err) }

// mayReconcile is the session in which a round may begin: this process holds the slot, reads the stream, and what came
// again after the start is over.
func (t *term) mayReconcile() *session {
	s := t.session.Load()
	if s == nil || s.passed.Load() == 0 || t.stopping.Load() || t.r.health.Role() != RoleActive {
		return nil
	}
	return s
}

// step does what is due.
func (c *reconciler) step(ctx context.Context, s *session) error {
	if s != c.session {
		if err := c.begin(ctx, s); err != nil {
			return err
		}
	}
	now := time.Now()
	switch {
	case c.state.Ranged && !now.Before(c.due):
		return c.round(ctx, s)
	case c.sweep != nil:
		if now.Before(c.sweep.resting) || c.term.behind() {
			return nil
		}
		return c.sweepOn(ctx, s)
	case c.soon.Load(), c.state.Ranged && time.Since(c.state.SweptAt) > sweepEvery, !c.state.Ranged && !now.Before(c.due):
		return c.beginSweep(ctx)
	}
	return nil
}

// begin reads what the last owner of the slot has left, and makes a round due at once: what another one has done to the
// slot meanwhile shows by it.
func (c *reconciler) begin(ctx context.Context, s *session) error {
	state, err := c.r.store.AuditState(ctx)
	if err != nil {
		return err
	}
	c.session, c.state, c.horizon, c.due = s, state, horizon{}, time.Now()
	c.drop()
	return nil
}

// round looks at the rows since the horizon.
func (c *reconciler) round(ctx context.Context, s *session) error {
	began := time.Now()
	running, err := c.r.store.Running(ctx)
	if err != nil {
		return err
	}
	passed := c.horizon.advance(running) // before the look, which sees what is over then
	ids, err := c.r.store.UnrecordedSince(ctx, c.state.Horizon.Add(-horizonMargin), unrecordedMost)
	if err != nil {
		return err
	}
	read := time.Since(began)
	missed, err := c.prove(ctx, s, ids)
	if err != nil {
		return err
	}
	whole := len(ids) < unrecordedMost
	c.due = time.Now().Add(max(time.Duration(c.r.c.Reconcile.Interval), roundRest*read))
	if !whole {
		c.due = time.Now() // there may be more
	}
	c.judge(missed, whole, began)
	// What was missed is on its way, and not recorded: until it is, the next round must see it.
	if passed && whole && missed == 0 {
		c.state.Horizon, c.horizon = c.horizon.next, horizon{}
		return c.saveHorizon(ctx)
	}
	return nil
}

// judge says what a finished round means.
func (c *reconciler) judge(missed int, whole bool, began time.Time) {
	c.missed = missed
	if missed == 0 && whole {
		c.clean.Store(began.UnixNano())
		c.r.health.Reconciled(0)
	}
}

// saveHorizon writes only after events: an idle relay stays idle. The first one of a process is written in any case, since
// the process before may have ended with events behind its horizon.
func (c *reconciler) saveHorizon(ctx context.Context) error {
	n := c.r.metrics.settledEvents.Load()
	if n == c.settled {
		return nil
	}
	if err := c.r.store.SaveHorizon(ctx, c.state.Horizon); err != nil {
		return err
	}
	c.settled = n
	return nil
}

// all looks at the whole table without a rest.
func (c *reconciler) all(ctx context.Context, s *session, order *reconcileOrder) error {
	if err := c.begin(ctx, s); err != nil {
		return err
	}
	w := &sweep{began: time.Now(), end: c.state.Blocks}
	report := ReconcileReport{}
	for w.next < w.end {
		n, err := c.look(ctx, s, w)
		if err != nil {
			return err
		}
		report.Unrecorded += n
	}
	missed, err := c.prove(ctx, s, w.ids)
	if err != nil {
		return err
	}
	report.Missed, report.Took = w.missed+missed, time.Since(w.began)
	order.ReconcileReport = report
	return c.swept(ctx, w, report.Missed)
}
