// Package reconcile proves, round by round, that the stream has missed no committed row of the outbox, and has a row
// that it missed published late. Only the table knows what was committed while the stream did not cover it. The package
// reads tables and waits for the stream; it sends nothing itself, and confirms nothing: publishing is the session's,
// recording the settler's. What needs a server to be tested is tested in package relay.
package reconcile

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// Tables is the part of the store that a reconciler uses; package store documents its methods.
type Tables interface {
	AuditState(ctx context.Context) (store.AuditState, error)
	SaveHorizon(ctx context.Context, horizon time.Time) error
	SaveSweep(ctx context.Context, at time.Time) error
	Running(ctx context.Context) (store.Running, error)
	UnrecordedSince(ctx context.Context, since time.Time, limit int) ([][]byte, error)
	UnrecordedIn(ctx context.Context, from, to int64, limit int) ([][]byte, error)
	LateRows(ctx context.Context, ids [][]byte, limit int) ([]store.CatchUpRow, error)
	EmitToken(ctx context.Context, prefix, content string) (outbox.LSN, error)
}

// Stream is the stream of one session, in commit order, past what comes again after a start.
type Stream interface {
	Epoch() int64
	Mark(m *Mark)              // from now on the stream is searched for it; nil: for none
	Passed(at outbox.LSN) bool // everything before the position is recorded
	Over() <-chan struct{}     // closed when the session has ended
	Heed(err error)            // of a call that began in the session
	// SendLate publishes rows that the stream has missed in the order given, from the index on at the position, which is
	// where they stand in the order of all. It returns when they are in flight, or ErrStreamOver.
	SendLate(ctx context.Context, rows []store.CatchUpRow, at outbox.LSN, index uint32) error
}

// Host is the relay that runs a reconciler. Its methods are safe for concurrent use.
type Host interface {
	Stream() Stream        // nil: no round may begin now
	Behind() bool          // events wait: they go first
	LateInFlight() int     // events that SendLate was given and nothing has recorded yet
	Settled() uint64       // events that this process has recorded
	Missed(rows int)       // a round has found rows that the stream has missed
	Clean(began time.Time) // a round that began then has found none
	Published(rows int)    // of those that were missed, so many are in flight now
}

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
	// sweepStarve is how long a look of a sweep may be put off by events that wait, which under a load that never ends
	// they always do: sweepYields times as long as the look before it has taken, if that is less. Looks at many tables
	// that come, which are small, then take a twentieth of the time, and not 10 s each.
	sweepStarve = 10 * time.Second
	sweepYields = 20
	// reconcilerLook is the pause between two looks whether there is something to do.
	reconcilerLook = 500 * time.Millisecond
	// reconcilerRest is that pause after a look that found nothing to do.
	reconcilerRest = 2 * time.Second
	// reconcilerAgain is the pause after a round that Postgres, or the end of a session, cut off.
	reconcilerAgain = 5 * time.Second
	// markLook is the pause between two looks whether the stream has come as far as a proof needs.
	markLook = 20 * time.Millisecond

	neverSaved = math.MaxUint64
)

// Reconciler proves, round by round, that no committed row was missed, and publishes it if one was. A round:
//
//  1. ids of rows that nothing has recorded, of the range since the horizon, or of the whole table;
//  2. then a mark in the WAL;
//  3. wait until the stream has delivered the mark and everything up to its commit is confirmed, that is, recorded;
//  4. look at the ids again: a row that is there and not recorded was never delivered. It is published now, marked as
//     late.
//
// A row that was seen before the mark was written committed before it, so it was delivered before it, if at all, and by
// (3) is recorded. That holds for long, prepared and asynchronous commits: it depends on no clock and no order of ids.
type Reconciler struct {
	interval time.Duration // reconcile.interval
	log      zerolog.Logger
	asked    chan *order

	soon atomic.Bool              // the whole table is to be looked at, though its time has not come
	oids atomic.Pointer[[]uint32] // of the outbox and its partitions, as last seen

	// Owned by Run.
	tables  Tables
	host    Host
	order   *order // taken and not done yet
	stream  Stream // for which what follows was read
	state   store.AuditState
	horizon horizon
	due     time.Time // of the next round, or of the next sweep where only sweeps can be
	settled uint64    // events settled when this process saved the horizon; neverSaved: it has not yet
	sweep   *sweep    // that is under way
	more    bool      // a table has come, and perhaps others with it
}

// order is a person's request: the whole table, at once.
type order struct {
	gone <-chan struct{} // closed: no one waits for it any more
	done chan struct{}
	Report
	err error
}

// Report is the result of a check of the whole table.
type Report struct {
	Unrecorded int           `json:"unrecorded"` // rows that were not recorded when they were seen; most were on their way
	Missed     int           `json:"missed"`     // of those, rows that the stream has never delivered: published now
	Took       time.Duration `json:"took_ns"`
	// CaughtUp is how many rows this process has published from the table before it streamed, since they are older than
	// the slot, or the slot had passed them.
	CaughtUp int `json:"caught_up,omitempty"`
}

// dropped reports that no one waits for the order; a nil one is not.
func (o *order) dropped() bool {
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

// New makes a reconciler that looks every so often.
func New(interval time.Duration, log zerolog.Logger) *Reconciler {
	return &Reconciler{interval: interval, log: log, asked: make(chan *order), settled: neverSaved}
}

// Order looks at the whole table at once and has published what the stream has missed. It waits until the relay
// streams, and until everything that was committed before the look is recorded.
func (c *Reconciler) Order(ctx context.Context) (Report, error) {
	o := &order{gone: ctx.Done(), done: make(chan struct{})}
	select {
	case c.asked <- o:
	case <-ctx.Done():
		return Report{}, context.Cause(ctx)
	}
	select {
	case <-o.done:
		return o.Report, o.err
	case <-ctx.Done():
		return Report{}, context.Cause(ctx)
	}
}

// Run reconciles until the context ends. One Run follows another, never two at once.
func (c *Reconciler) Run(ctx context.Context, tables Tables, host Host) {
	c.tables, c.host = tables, host
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
		timer.Reset(min(reconcilerLook, c.interval))
		s := c.host.Stream()
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
			if rest := c.rest(); rest > reconcilerLook {
				timer.Reset(rest)
			}
		}
		if err != nil && ctx.Err() == nil {
			s.Heed(err)
			c.failed(err)
			timer.Reset(reconcilerAgain)
		}
	}
}

// rest is until there may be something to do, 0 while something is under way.
func (c *Reconciler) rest() time.Duration {
	if c.sweep != nil || c.more || c.soon.Load() {
		return 0
	}
	return min(time.Until(c.due), reconcilerRest)
}

// failed notes a round that was cut off. It proves nothing, and the age of the last clean one tells.
func (c *Reconciler) failed(err error) {
	c.stream = nil
	c.drop()
	if passes(err) {
		c.log.Debug().Err(err).Msg("a reconcile round was cut off; another one follows")
		return
	}
	if tables, are := c.tables.(several); are {
		tables.NextTable() // the others have their rounds
	}
	c.log.Warn().Err(err).Msg("cannot reconcile: whether rows were missed is not known since the last clean round")
}

// passes reports that the same round may succeed later, without anybody doing anything.
func passes(err error) bool { return errors.Is(err, ErrStreamOver) || store.IsTransient(err) }

// step does what is due.
func (c *Reconciler) step(ctx context.Context, s Stream) error {
	if s != c.stream {
		if err := c.begin(ctx, s); err != nil {
			return err
		}
	}
	now := time.Now()
	tables, are := c.tables.(several)
	switch {
	case are && c.sweep == nil && c.arrived(tables):
		if err := c.read(ctx); err != nil {
			return err
		}
		return c.beginSweep(ctx)
	case c.state.Ranged && !now.Before(c.due):
		return c.round(ctx, s)
	case c.sweep != nil:
		if now.Before(c.sweep.resting) || c.host.Behind() && now.Before(c.sweep.yields) {
			return nil
		}
		return c.sweepOn(ctx, s)
	case c.soon.Load(), c.state.Ranged && time.Since(c.state.SweptAt) > sweepEvery, !c.state.Ranged && !now.Before(c.due):
		return c.beginSweep(ctx)
	}
	return nil
}

// begin reads what the last owner of the slot has left, and makes a round due at once: what another one has done to the
// slot in the meantime shows by it.
func (c *Reconciler) begin(ctx context.Context, s Stream) error {
	state, err := c.tables.AuditState(ctx)
	if err != nil {
		return err
	}
	c.stream, c.state, c.horizon, c.due = s, state, horizon{}, time.Now()
	c.drop()
	return nil
}

// round looks at the rows since the horizon.
func (c *Reconciler) round(ctx context.Context, s Stream) error {
	began := time.Now()
	running, err := c.tables.Running(ctx)
	if err != nil {
		return err
	}
	passed := c.horizon.advance(running) // before the look, which sees what is over then
	ids, err := c.tables.UnrecordedSince(ctx, c.state.Horizon.Add(-horizonMargin), unrecordedMost)
	if store.IsOutOfTime(err) {
		return c.sweepInstead(ctx)
	}
	if err != nil {
		return err
	}
	read := time.Since(began)
	missed, err := c.prove(ctx, s, ids)
	if err != nil {
		return err
	}
	whole := len(ids) < unrecordedMost
	c.due = time.Now().Add(max(c.pause(), roundRest*read))
	if !whole {
		c.due = time.Now() // there may be more
	}
	c.judge(missed, whole, began)
	// What was missed is on its way, and not recorded: until it is, the next round must see it.
	if passed && whole && missed == 0 {
		c.state.Horizon, c.horizon = c.horizon.next, horizon{}
		if err := c.saveHorizon(ctx); err != nil {
			return err
		}
		return c.turn(ctx)
	}
	return nil
}

// judge says what a finished round means.
func (c *Reconciler) judge(missed int, whole bool, began time.Time) {
	if missed == 0 && whole {
		c.host.Clean(began)
	}
}

// saveHorizon writes only after events: an idle relay stays idle. The first one of a process is written in any case,
// since the process before may have ended with events behind its horizon.
func (c *Reconciler) saveHorizon(ctx context.Context) error {
	n := c.host.Settled()
	if n == c.settled {
		return nil
	}
	if err := c.tables.SaveHorizon(ctx, c.state.Horizon); err != nil {
		return err
	}
	c.settled = n
	return nil
}

// all looks at the whole table, or at all tables, without a rest.
func (c *Reconciler) all(ctx context.Context, s Stream, o *order) error {
	began, report := time.Now(), Report{}
	tables, are := c.tables.(several)
	left := 1
	if are {
		left = tables.Tables()
	}
	for ; left > 0; left-- {
		if are {
			tables.NextTable()
		}
		if err := c.whole(ctx, s, &report); err != nil {
			return err
		}
	}
	report.Took = time.Since(began)
	o.Report = report
	return nil
}

// whole looks at a whole table.
func (c *Reconciler) whole(ctx context.Context, s Stream, report *Report) error {
	if err := c.begin(ctx, s); err != nil {
		return err
	}
	w := &sweep{began: time.Now(), end: c.state.Blocks}
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
	report.Missed += w.missed + missed
	return c.swept(ctx, w, w.missed+missed)
}
