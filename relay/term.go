package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/message"
	"github.com/cdc-relay/cdc-relay/internal/run/bootstrap"
	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/internal/run/lease"
	"github.com/cdc-relay/cdc-relay/internal/run/recovery"
	"github.com/cdc-relay/cdc-relay/internal/run/restart"
	"github.com/cdc-relay/cdc-relay/internal/run/settings"
	"github.com/cdc-relay/cdc-relay/internal/settle"
	"github.com/cdc-relay/cdc-relay/internal/settle/requests"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/sink"
)

const (
	// abandonPatience bounds how long requests in flight may go on when a term ends that another relay's has followed:
	// what they write by then is found when the topics are read back.
	abandonPatience = time.Second
	// restPatience is how long a stop without a session goes on when nothing that was sent is left to be recorded, for
	// dead letters and parks that are being written; restLook is how often it looks.
	restPatience, restLook = time.Second, 20 * time.Millisecond
	// standbyPoll is the interval of a standby's full look, a connection of its own; in between it asks for the slot
	// alone, standbyLook apart. Several relays of a process that stand by share both, but for no longer than the bounds.
	standbyPoll, slowestPoll = 250 * time.Millisecond, 30 * time.Second
	standbyLook, slowestLook = 50 * time.Millisecond, time.Second
	// standbyShare is how many standbys of a process look as often as a single one.
	standbyShare = 4
)

// term holds what this process may have in memory because no other relay has had the slot since: events in flight,
// parked, diverted or held, and what settles it. Run makes it, whole, by newTerm. It ends with the process, or when
// another relay turns out to have had the slot, and is dropped then: what was in flight may have been settled by the
// other one, or parked, or be out of its place by now. It also ends when a topic turns out to have a record of a relay
// that was replaced which it cannot know of. Nothing of it is left to be reset, the next one begins from
// zero, as after a crash.
//
// A term lasts across sessions: what is in flight when a stream breaks is recognised when it comes again, and attached
// to the next session's ledger. A take-over of its own does not end it.
type term struct {
	r *Relay

	// Made by newTerm, never changed; each guards itself.
	engine   *sink.Engine
	settler  *settle.Settler
	requests *requests.Executor
	inflight *settle.Registry // the settler's
	lease    *lease.Lease
	names    *message.Names

	// Of comparePositions: topics whose ends and cluster are to be compared, and those that were just announced.
	tails     chan []store.TopicTail
	announced chan []string

	spools   atomic.Bool // the next session is to store its stream
	stopping atomic.Bool // no retries begin any more, nor do rounds of the reconciler

	// Owned by the supervisor.
	epoch      int64 // of its last take-over; 0: none
	tookOverOn int32 // the timeline of that
	informed   bool  // it knows what the topics hold beyond the journal
	timeline   int32 // of the server for which it knows that; 0: none
	// sent holds the findings of the last recovery scan until redelivery is over; nil: none.
	sent *recovery.Sent

	// session is the current one, nil between two. Only the supervisor stores it.
	session atomic.Pointer[session]
}

func newTerm(r *Relay) *term {
	t := &term{r: r, tails: make(chan []store.TopicTail, 1), announced: make(chan []string, announcements),
		names: message.NewNames(r.c.Limits.Topics),
		lease: lease.New(r.started, time.Duration(r.c.Postgres.WALSenderTimeout))}
	t.engine = sink.New(r.driver, t.sinkConfig())
	_, readsBack := r.driver.(sink.Tailer)
	t.settler = settle.New(settle.Options{
		Config: r.c, Retry: settings.Retry(r.c.Retry), Logger: r.log, Tables: r.store, Engine: t.engine,
		Host: host{t}, Meter: &r.meter.Outcomes, Pulse: &r.meter.Pulses.Settling, ReadsBack: readsBack,
		Old: r.meter.Stream.Old, Outboxes: &r.meter.Outboxes,
	})
	t.inflight = t.settler.InFlight()
	tables, _ := r.store.(requests.Tables)
	t.requests = requests.New(requests.Options{
		Config: r.c, Logger: r.log, Tables: tables, Queue: t.settler, Host: requestsHost{host{t}}, Pausing: r.pausing,
	})
	return t
}

// superseded reports that what this process has in memory may have been settled by another relay, or parked, or be out
// of its place by now. The state is that of the moment at which the slot was granted. A take-over of our own whose
// answer was lost looks the same, and costs the same. A promoted server may lack ours: another relay's has the same
// number there.
func (t *term) superseded(state *store.State) bool {
	return t.epoch != 0 && (state.Epoch != t.epoch || state.Timeline != t.tookOverOn)
}

// run runs sessions, and what works beside them, until the context ends or the relay halts permanently. It returns
// bootstrap.ErrSuperseded when another relay has had the slot, or restart.ErrArrived: then everything that was in
// flight is dropped, as in a crash, and the next term finds out about it as a start after a crash does. None of it can
// be sent or parked any more: the lease's proof is gone since the last session ended, and all goroutines of the term
// have ended when run returns; a write that the server still does is under an older epoch. graceOver begins the grace
// of a stop that no one asked for.
func (t *term) run(ctx context.Context, graceOver func() <-chan struct{}) error {
	// What runs beside the sessions outlives the context by the grace: stopping needs it.
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBackground()
	var workers sync.WaitGroup
	keeper := t.newKeeper()
	for _, work := range []func(context.Context){
		t.settler.Run, t.watch, t.count, t.requests.Run, keeper.Mirror, keeper.Retention, keeper.Prune, keeper.Failures,
		func(ctx context.Context) { t.r.reconciler.Run(ctx, t.r.store, reconcileHost{t}) },
		t.keepAlarms, t.comparePositions,
	} {
		workers.Go(func() { work(background) })
	}
	err := t.supervise(ctx)
	end, patience, dropped := t.engine.Close, time.Second, t.r.health.Role() == RoleStandby
	if endsTerm(err) {
		end, patience, dropped = t.engine.Abandon, abandonPatience, true
		t.r.log.Warn().Err(err).Int("in_flight", t.inflight.Len()).
			Msg("dropping what was in flight, and looking it up as after a crash")
	} else {
		if !errors.Is(err, ErrGraceOver) {
			err = errors.Join(err, t.settleRest(graceOver()))
		}
		t.r.health.Enter(RoleStopping)
	}
	stopBackground()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	ended := end(closing)
	workers.Wait()
	if dropped {
		return err // requests that were cut off are no failure
	}
	return errors.Join(err, ended)
}

// endsTerm reports whether the term ends and another one follows.
func endsTerm(err error) bool {
	return errors.Is(err, bootstrap.ErrSuperseded) || errors.Is(err, restart.ErrArrived)
}

// settleRest waits, once there is no session any more, for what was sent to be recorded, or the next start would send
// it again. A session that a stop ended has drained already. What was not sent, or is to be sent again, cannot be now,
// without a proof of the lease. While another relay has the slot, what is not recorded at once may never be: it is that
// relay's to find.
func (t *term) settleRest(graceOver <-chan struct{}) error {
	replaced := t.r.health.Role() == RoleStandby
	breaker, look := t.settler.BreakerPatience(), time.NewTicker(restLook)
	defer look.Stop()
	for since := time.Now(); t.inflight.Len() > 0; {
		select {
		case <-t.inflight.Drained():
		case <-breaker:
			return nil
		case <-graceOver:
			if n := t.inflight.Len(); n > 0 { // else the last of them ended just then
				return fmt.Errorf("%d events were still in flight: %w", n, ErrGraceOver)
			}
		case <-look.C:
			if breaker == nil {
				breaker = t.settler.BreakerPatience()
			}
		}
		if st := t.engine.Status(); st.Unrecorded > st.Waiting && !replaced {
			since = time.Now()
		} else if breaker == nil && time.Since(since) > restPatience {
			return nil
		}
	}
	return nil
}

// supervise runs one session after another until the context ends.
func (t *term) supervise(ctx context.Context) error {
	var row restart.Failures
	for {
		begun := time.Now()
		err := t.runSession(ctx)
		switch {
		case ctx.Err() != nil:
			return t.r.stopped(err)
		case endsTerm(err):
			return err
		}
		lasted, role := time.Since(begun), t.r.health.Role()
		busy, standby := errors.AsType[*replication.SlotBusyError](err)
		stop := halt.Of(err)
		if stop != nil && t.r.repaired(ctx, err) {
			stop = nil
		}
		pause := row.Next(lasted, role == RoleActive, err, stop != nil)
		switch {
		case standby:
			t.r.standBy(busy)
			t.awaitFree(ctx)
			pause, row = 0, restart.Failures{}
		case stop != nil:
			t.r.halted(stop)
			if t.r.c.OnHalt == config.OnHaltExit {
				return stop
			}
		default:
			reason := restart.Reason(err)
			t.r.meter.Stream.Restarted(reason)
			if news, unsaid := t.r.health.Trouble(reason, err, row.Sessions, pause); news {
				t.r.log.Warn().Err(err).Str("reason", reason).Int("attempt", row.Sessions).Dur("retry_in", pause).
					Int("repeated", unsaid).Msg(restart.Said(err))
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return t.r.stopped(nil)
		}
	}
}

// awaitFree waits until the slot seems to be free, or a full look at it is due.
func (t *term) awaitFree(ctx context.Context) {
	poll, look := sharedLooks(t.r.standbys.Add(1))
	defer t.r.standbys.Add(-1)
	t.r.setup().AwaitFree(ctx, spread(poll), look)
}

// sharedLooks are the pauses of one of n standbys between its full looks, and between its looks at the slot.
func sharedLooks(n int64) (poll, look time.Duration) {
	share := time.Duration(max(n, standbyShare))
	return min(standbyPoll*share/standbyShare, slowestPoll), min(standbyLook*share/standbyShare, slowestLook)
}

// yieldAbove is the fill of the window above which work other than events waits for them.
const yieldAbove = 0.25

// behind reports whether events wait: in the WAL, for the sink or for Postgres.
func (t *term) behind() bool {
	if t.r.meter.Stream.Old() {
		return true
	}
	window, _ := t.engine.Filled()
	return window > yieldAbove
}

// spread varies a pause by a quarter so that several processes do not poll in step.
func spread(d time.Duration) time.Duration {
	return d + time.Duration(rand.Int64N(int64(d)/4+1))
}
