package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/decoder"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/run/bootstrap"
	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/internal/run/restart"
	"github.com/cdc-relay/cdc-relay/internal/run/spool"
	"github.com/cdc-relay/cdc-relay/internal/settle"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/internal/upkeep/reconcile"
	"github.com/cdc-relay/cdc-relay/offsets"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/sink"
)

// tokenPrefix marks the relay's own logical messages in the WAL.
const tokenPrefix = store.TokenPrefix

// session is one replication connection's worth of relaying. runSession makes it, and when that returns it has ended;
// the term's pointer to it is nil then.
//
// The goroutine in runSession, which dispatches too, owns it. Others use what is shown, mark, late, over and fail, and
// the ledger, which guards itself: the settler counts it down, the stream asks it what is confirmed.
type session struct {
	r      *Relay
	term   *term
	ledger *offsets.Ledger
	stream Stream
	grant  replication.Grant
	state  *store.State // as it was before this session took over
	epoch  int64
	heard  bool        // its stream was read
	fail   func(error) // ends the session, from any goroutine

	decoding decoder.Config
	decoder  *decoder.Decoder
	sourceSet
	scratch
	redelivery
	transaction
	spooling

	// The reconciler's: see there.
	mark   atomic.Pointer[reconcile.Mark] // that it waits for
	marked *reconcile.Mark                // delivered, its commit not yet
	late   chan lateRows
	over   chan struct{} // closed when the session has ended

	shown
}

// scratch is memory that the dispatcher uses from batch to batch.
type scratch struct {
	spare   []*settle.Delivery // free ones, to be filled next
	records []*sink.Record     // of send
	large   bool               // an event of the batch was left in the buffer in which it was read; see keep
}

// redelivery describes the events that may come again: until token is delivered every id is looked up before it is
// sent.
type redelivery struct {
	lookup  bool
	token   string
	known   settle.Known // in flight when the session began
	passing bool         // the token is in what is being sent

	reusedIDs int                 // events that were sent though their ids are recorded: of other events
	unsure    map[string][]string // of those, by topic, the first ids whose recorded event is unknown
}

// transaction is the place in the stream.
type transaction struct {
	inTx      bool
	commitLSN outbox.LSN
	committed int64      // when, microseconds since the Unix epoch
	rows      uint32     // of the outbox so far
	began     outbox.LSN // the place of its first change in the WAL; 0: not known
	wal       uint64     // of transactions, from their first change to their commit, since the last look,
	walEvents uint64     // and how many events they had
	reached   outbox.LSN // end of the last transaction or keepalive
	now       time.Time  // of the batch
	retyped   error      // why the stream's rows cannot be made into messages any more in this session
}

// spooling is from where the dispatcher gets what it dispatches.
type spooling struct {
	sources  []<-chan *replication.Batch // one after the other; the last is the stream, if it is to be read
	counting *offsets.Ledger             // that its events are counted in: the session's, or of what is spooled
	endSpool func()                      // ends what opened the spool, and waits for it

	settledBefore uint64 // events, when the session began
}

// shown is read by other goroutines: for status and metrics, and passed for the settler and the reconciler.
type shown struct {
	epochSeen atomic.Int64
	lookingUp atomic.Bool
	events    atomic.Uint64 // received from the stream in this session
	passed    atomic.Uint64 // see redelivered; 0 before
	taken     atomic.Uint64 // position up to which the dispatcher has applied the stream; 0 before
	suspect   atomic.Bool   // the outbox is another table by now: the watch is to look for drift at once
	takes     atomic.Bool   // the dispatcher waits for the stream, and for nothing else
	tookAt    atomic.Int64  // when it took the last batch, or the session began, counted from settle.Start
	ahead     atomic.Int64  // how much the server's clock is ahead of ours, in nanoseconds; the watch stores it

	spool      atomic.Pointer[spool.Spool] // nil: nothing was spooled when the session began, nor is to be
	spooled    atomic.Bool                 // something may be spooled
	tableFirst atomic.Bool                 // a catch-up is to be done
}

// openSession prepares what is missing, takes the slot and starts its stream. The session's stream is not read yet.
func (t *term) openSession(ctx context.Context) (s *session, table store.Outbox, err error) {
	setup := t.r.setup()
	setup.Last, setup.Older, setup.Superseded = t.r.last, &t.r.older, t.superseded
	setup.Counted, setup.TableFirst = t.r.meter.Stream.Recreations.Inc, t.r.meter.Database.TableFirst
	if t.r.outboxes != nil {
		t.r.outboxes.Begin()
	}
	if table, err = setup.Prepare(ctx); err != nil {
		return nil, table, err
	}
	stream, err := t.r.postgres.OpenStream(ctx, t.r.replicationConfig())
	if err != nil {
		return nil, table, err
	}
	// Once more: another relay may have had the slot, and given it up, since the first look. From now on it is ours.
	state, err := t.r.store.State(ctx)
	if err != nil || state == nil {
		stream.Close()
		return nil, table, errors.Join(errStateGone, err)
	}
	if t.superseded(state) {
		stream.Close()
		return nil, table, bootstrap.ErrSuperseded
	}
	grant := stream.Granted()
	s = &session{r: t.r, term: t, stream: stream, grant: grant, state: state, ledger: offsets.New(grant.Confirmed),
		late: make(chan lateRows), over: make(chan struct{})}
	s.sources, s.counting, s.endSpool = []<-chan *replication.Batch{stream.Batches()}, s.ledger, func() {}
	s.settledBefore = t.r.meter.Outcomes.Settled()
	s.tookAt.Store(int64(settle.SinceStart(time.Now())))
	s.spooled.Store(true)
	s.setTableFirst(state.Phase == store.CatchUp)
	return s, table, nil
}

// setTableFirst notes whether a catch-up is to be done.
func (s *session) setTableFirst(is bool) {
	s.tableFirst.Store(is)
	s.r.meter.Database.TableFirst(is)
}

// runSession relays until the stream ends or the context does. With the context it stops in order: see drain.
func (t *term) runSession(ctx context.Context) (err error) {
	s, table, err := t.openSession(ctx)
	if err != nil {
		return err
	}
	stream := s.stream
	defer close(s.over)
	defer func() { t.remember(s, err) }()
	t.r.reconciler.Covers(table.OIDs)
	if err := s.compatible(); err != nil {
		stream.Close()
		return err
	}

	// Stopping is in phases, so the work outlives ctx: by the grace, or until the stream fails.
	working, endWork := context.WithCancelCause(context.WithoutCancel(ctx))
	defer endWork(nil)
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(time.Duration(t.r.c.ShutdownGrace), func() { endWork(ErrGraceOver) })
		t.settler.AwaitOpenBreaker(working)
		endWork(errBreakerOpen) // or the work has ended
	})()
	streaming, endStream := context.WithCancel(context.WithoutCancel(ctx))
	streamErr := make(chan error, 1)
	go func() {
		err := stream.Run(streaming, s.ledger.Confirmed)
		endWork(err)
		streamErr <- err
	}()
	s.fail = endWork

	t.session.Store(s)
	err = s.relay(ctx, working, table)
	s.endSpool()
	if err == nil && ctx.Err() != nil {
		err = s.drain(working)
	}
	t.session.Store(nil)
	t.lease.Disown()                // before the stream takes leave, which takes time
	cause := context.Cause(working) // what ended the work, if it did not end by itself
	endStream()
	ended := <-streamErr
	t.lease.Disown()
	if halt.Of(err) != nil || ctx.Err() != nil {
		return err
	}
	return cmp.Or(cause, err, ended)
}

// remember keeps the facts about this session that the next start needs.
func (t *term) remember(s *session, err error) {
	t.r.last = t.r.last.Next(bootstrap.Ended{Epoch: s.epoch, Timeline: s.grant.System.Timeline,
		Confirmed: s.ledger.Confirmed(), Heard: s.heard, Err: err})
}

// errStateGone reports that the slot's state cannot be read between two steps of a start.
var errStateGone = errors.New("the relay's state cannot be read")

// owner is the current session if it has taken over. What a database call says of the session, its fence or the
// server's end, counts only for the one that owned the slot when the call began: a take-over ends the calls of the
// time before, and they see what a server says that shuts down.
func (t *term) owner() *session {
	if s := t.session.Load(); s != nil && s.epochSeen.Load() != 0 {
		return s
	}
	return nil
}

// heed ends the session, nil for none, when the error of a call that it owned says that it can record nothing any
// more. Either the server is shutting down: it waits, without an end, until the stream has confirmed everything that
// was sent, and what is not settled by now cannot be any more. Or another relay has taken the slot over, which a
// stream that is not being read tells nothing of.
func (s *session) heed(err error) {
	switch {
	case s == nil:
	case errors.Is(err, store.ErrFenced):
		s.lose(restart.ErrTakenOver)
	case store.IsShutdown(err): // also what a take-over says to the sessions that it ends
		s.lose(replication.ErrServerEnded)
	case errors.Is(err, store.ErrOtherTable):
		s.suspect.Store(true) // the next look for drift, which comes at once, ends the session
	}
}

// lose ends the session because the slot is not, or may not be, its own any more: from now on no request begins.
func (s *session) lose(why error) {
	if s.term.session.Load() == s {
		s.term.lease.Disown()
	}
	s.fail(why)
}

// errBreakerOpen ends a stop that cannot settle what waits for a person.
var errBreakerOpen = errors.New("halted by dlq.breaker; the next start continues from there")

// ErrGraceOver is returned by Run if a stop took longer than shutdown_grace. Nothing is lost: the next start recovers.
var ErrGraceOver = errors.New("shutdown_grace is over")

// within is a context that ends when the first of two does.
func within(ctx, other context.Context) (context.Context, context.CancelFunc) {
	both, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return both, func() { stop(); cancel(nil) }
}

// relay takes over and reads until the work ends or, at the end of a transaction, ctx does.
func (s *session) relay(ctx, working context.Context, table store.Outbox) error {
	if err := s.begin(ctx, working, table); err != nil {
		return err
	}
	s.term.enter(RoleActive)
	s.term.settler.Recheck()
	s.r.log.Info().Str("slot", s.r.c.Postgres.Slot).Int64("epoch", s.epoch).Str("from", s.grant.Confirmed.String()).
		Bool("look_up", s.lookup).Int("in_flight", s.known.Len()).Msg("streaming")
	s.heard = true
	return s.dispatch(working, ctx.Done())
}

// drain is the second half of a stop: reading has ended at a transaction's end, what is in flight is sent and recorded
// within the grace, then the state says clean and the stream, which still runs, confirms the same position.
func (s *session) drain(working context.Context) error {
	s.term.stopping.Store(true)
	select {
	case <-s.term.inflight.Drained():
	case <-working.Done():
	}
	if ended := context.Cause(working); ended != nil {
		if n := s.term.inflight.Len(); n > 0 {
			return fmt.Errorf("%d events were still in flight: %w", n, ended)
		}
		return fmt.Errorf("everything is recorded but the clean stop: %w", ended)
	}
	if p := s.spool.Load(); p != nil {
		p.Sweep(working)
	}
	if s.inTx || s.lookup || s.ledger.Pending() > 0 || s.counting.Pending() > 0 {
		return errors.New("stopped inside a transaction or before a restart's look-ups were over; " +
			"the next start looks up again")
	}
	if topic, since := s.r.unclaimed(); !since.IsZero() {
		return fmt.Errorf("a record that had arrived late in %s is not recorded yet; the next start looks it up", topic)
	}
	err := s.r.store.SaveOffsets(working, s.term.settler.TakeOffsets())
	if err == nil {
		err = s.r.store.CleanStop(working, s.ledger.Confirmed())
	}
	if err != nil {
		return fmt.Errorf("record the clean stop: %w", cmp.Or(context.Cause(working), err)) // what is cut off says only that
	}
	s.r.log.Info().Str("confirmed", s.ledger.Confirmed().String()).Msg("clean stop recorded")
	return nil
}
