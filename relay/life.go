package relay

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/store"
)

// errSuperseded says that another relay has had the slot since this process had it last.
var errSuperseded = errors.New("another relay has had the slot meanwhile; beginning anew")

// abandonPatience is how long requests in flight may go on when a life ends that another relay's has followed: what they
// write by then is found when the topics are read back.
const abandonPatience = time.Second

// superseded says that what this process has in memory may have been settled by another relay, or parked, or be out of its
// place by now. The state is that of the moment at which the slot was granted. A take-over of our own whose answer was lost
// looks the same, and costs the same.
func (r *Relay) superseded(state *store.State) bool { return r.epoch != 0 && state.Epoch != r.epoch }

// live runs sessions, and what works beside them, until the context ends or the relay halts for good. It returns
// errSuperseded when another relay has had the slot: then everything that was in flight is dropped, as in a crash, and
// the next life finds out about it as a start after a crash does. None of it can be sent or parked any more: the lease's proof
// is gone since the last session ended, and all goroutines of the life have ended when live returns; a write that the
// server still does is under an older epoch. graceOver begins the grace of a stop that nobody asked for.
func (r *Relay) live(ctx context.Context, graceOver func() <-chan struct{}) error {
	r.begin()
	// What runs beside the sessions outlives the context by the grace: stopping needs it.
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBackground()
	var workers sync.WaitGroup
	for _, run := range []func(context.Context){
		r.settler.run, r.mirror, r.watch, r.retrier.run, r.diverter, r.cleaner, r.retention, r.execute, r.reconciler.run, r.breaker.run,
		r.inflight.trims,
	} {
		workers.Go(func() { run(background) })
	}
	err := r.supervise(ctx)
	end, patience := r.engine.Close, time.Second
	if errors.Is(err, errSuperseded) {
		end, patience = r.engine.Abandon, abandonPatience
		r.log.Warn().Int("in_flight", r.inflight.len()).Msg("another relay had the slot meanwhile: what was in flight is dropped, and looked up as after a crash")
	} else {
		// A session that a stop ended has drained already. After a halt, or between two sessions, what was sent must still be
		// recorded, or the next start would send it again.
		select {
		case <-r.inflight.drained():
		case <-r.breaker.patience():
		case <-graceOver():
		}
		r.health.enter(RoleStopping)
	}
	stopBackground()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	ended := end(closing)
	workers.Wait()
	if errors.Is(err, errSuperseded) {
		return err // requests that were cut off are no failure
	}
	return errors.Join(err, ended)
}

// begin makes what a life has of its own.
func (r *Relay) begin() {
	r.epoch, r.informed = 0, false
	r.inflight.abandon()
	r.intake.reset()
	r.diverted.Clear()
	r.parked.Store(0)
	r.moving.Store(0)
	r.asideUpTo.Store(0)
	r.health.forget()
	r.dismissed()
	r.engine = sink.New(r.driver, r.sinkConfig())
	r.running.Store(r.engine)
	r.retrier = newRetrier(r)
	r.breaker = newBreaker(r)
	r.settler = newSettler(r)
}
