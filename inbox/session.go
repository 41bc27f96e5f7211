package inbox

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox/internal/lanes"
	"github.com/cdc-relay/cdc-relay/inbox/internal/ledger"
)

// session is a consumer's work with one server: made with the offsets that the server has, thrown away whole when the
// server turns out to be another one. Consumer.once makes it and waits for its end.
type session struct {
	c      *Consumer
	ledger *ledger.Ledger
	engine *lanes.Engine
	feed   feed
	began  time.Time
	holder string // this session in inbox_offset
	trace  tracing

	hard     context.Context // of handlers and of the session's own statements: outlives a stop by Grace
	cut      context.CancelCauseFunc
	over     chan error   // one at most: why the session ends
	solitude sync.RWMutex // held for writing by an event that must run alone

	mu        sync.Mutex
	topicIDs  map[string]string
	careful   map[lanes.Place]*caution
	wrote     map[lanes.Place]int64 // the offset that inbox_offset has at least: read or written last
	gone      map[lanes.Place]int64 // offsets below are known to be lost, or were read
	startless map[lanes.Place]bool  // never read, and where the log starts is not known yet
	told      map[lanes.Place]int64 // the offset that the broker was told last
	running   map[*run]struct{}
	heartbeat time.Time        // when the last request was sent whose answer says that the partitions are this process's
	timeout   time.Duration    // how long they are without another one
	sources   map[string]int16 // numbers of sources, by name
	closing   bool             // the group is being left: callbacks have nothing to do
}

var (
	errStopped = errors.New("the consumer stops")
	errLost    = errors.New("the partition was lost")
)

func (c *Consumer) newSession(l *ledger.Ledger) (*session, error) {
	s := &session{
		c: c, ledger: l, holder: rand.Text(), over: make(chan error, 1),
		topicIDs: map[string]string{}, careful: map[lanes.Place]*caution{}, wrote: map[lanes.Place]int64{},
		gone: map[lanes.Place]int64{}, startless: map[lanes.Place]bool{}, told: map[lanes.Place]int64{}, began: time.Now(),
		running: map[*run]struct{}{},
		sources: map[string]int16{}, trace: newTracing(c.config.Tracer),
		engine: lanes.New(lanes.Options{
			Workers: c.config.Workers, MaxBatch: c.config.MaxBatch, BatchTime: c.config.BatchTime,
			MaxEvents: c.config.MaxEvents, MaxBytes: c.config.MaxBytes,
			Breaker: lanes.BreakerOptions{
				Outages: 3, Transients: 5, ProbeMin: time.Second, ProbeMax: 10 * time.Second,
				Deaths: 100, DeathRatio: 0.05, Window: time.Minute,
			},
			Limits: c.laneLimits(),
		}),
	}
	s.hard, s.cut = context.WithCancelCause(context.Background())
	s.feed = s.newFeed()
	return s, s.feed.dial()
}

// fail ends the session.
func (s *session) fail(err error) {
	select {
	case s.over <- err:
	default:
	}
}

// run works until the context ends or the session fails, and returns why.
func (s *session) run(ctx context.Context) (err error) {
	polling, stopPolling := context.WithCancel(ctx)
	defer stopPolling()
	var feeders, workers sync.WaitGroup
	feeders.Go(func() { s.feed.run(polling) })
	feeders.Go(func() { s.keep(polling) })
	for range s.c.config.Workers {
		workers.Go(s.work)
	}
	select {
	case <-ctx.Done():
		stopPolling()
		s.engine.Drain(s.gapTime())
	case err = <-s.over:
		s.cut(err)
		stopPolling()
		s.engine.Close()
	}
	ended := time.Now()
	grace := time.AfterFunc(s.c.config.Grace, func() { s.cut(errStopped) })
	stuck := s.await(&workers)
	feeders.Wait()
	clean := s.hard.Err() == nil && grace.Stop() && !stuck
	s.leave(clean, ended.Add(s.c.config.Grace))
	s.cut(errStopped)
	return err
}

// gapTime is for what lies below events that are decided already, when partitions go: else those would come again. It
// is half of the grace: the other half is for what runs then, and for noting the offsets.
func (s *session) gapTime() time.Duration { return s.c.config.Grace / 2 }

// stuckWait is how long handlers have to return when their context has ended.
const stuckWait = time.Second

// await waits for the workers, but not for handlers that ignore the end of their context. It reports whether there are
// such: they have lost their connections, so nothing of theirs is committed.
func (s *session) await(workers *sync.WaitGroup) (stuck bool) {
	idle := make(chan struct{})
	go func() {
		workers.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return false
	case <-s.hard.Done():
	}
	select {
	case <-idle:
		return false
	case <-time.After(stuckWait):
	}
	s.abandon(func(*run) bool { return true })
	return true
}

// abandon takes their transactions from handlers that did not return when their context had ended.
func (s *session) abandon(is func(*run) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range s.running {
		if !is(r) || r.ctx.Err() == nil {
			continue
		}
		s.c.config.Log.Error("inbox: a handler ignores the end of its context; it lost its connection, and its work is "+
			"rolled back", "consumer", s.c.config.Name, "since", r.since)
		if r.tx != nil {
			r.tx.Abandon()
		}
	}
}

const (
	noteWait  = 2 * time.Second // for noting the last offsets, if the grace has less
	leaveWait = 5 * time.Second // for leaving the group
)

// leave ends the membership; after a clean end nothing is delivered twice.
func (s *session) leave(clean bool, until time.Time) {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	if clean {
		ctx, cancel := context.WithTimeout(s.hard, max(time.Until(until), noteWait))
		defer cancel()
		progress := s.engine.Progress()
		places := make([]lanes.Place, len(progress))
		for i, p := range progress {
			places[i] = p.Place
		}
		if err := s.release(ctx, places); err != nil {
			s.c.config.Log.Warn("inbox: noting the last offsets", "consumer", s.c.config.Name, "error", err)
		}
	}
	left := make(chan struct{})
	go func() {
		s.feed.leave()
		close(left)
	}()
	select {
	case <-left:
	case <-time.After(leaveWait):
		s.c.config.Log.Warn("inbox: leaving the group takes long; its session will run out instead", "consumer",
			s.c.config.Name)
	}
}

// work is a worker's life.
func (s *session) work() {
	for {
		job, more := s.engine.Take()
		if !more {
			return
		}
		s.do(job)
	}
}

func (s *session) do(job lanes.Job) {
	r := s.newRun(job)
	defer r.end()
	var verdicts []lanes.Verdict
	switch job.Kind {
	case lanes.Handle:
		verdicts = s.handle(r, job)
	case lanes.Park:
		verdicts = s.park(r, job)
	case lanes.Retry:
		verdicts = []lanes.Verdict{s.retry(r, job)}
	}
	s.engine.Finish(job, verdicts, r.handled, r.took)
}

// run is a job that a worker has.
type run struct {
	s         *session
	ctx       context.Context // of transactions and of what is noted about events: ends with the partition or the consumer
	cancel    context.CancelCauseFunc
	timer     *time.Timer // of the handler that runs
	watch     watch
	places    []lanes.Place
	record    *kgo.Record // of the first event
	probe     bool
	handled   int
	took      time.Duration
	divisible bool       // the transaction may end before each event has had its turn
	traced    bool       // the transaction has a traceparent set
	since     time.Time  // since when the present handler runs; guarded by the session's mu
	tx        *ledger.Tx // of handlers; guarded by the session's mu

	handling    context.Context // of handlers: ends with ctx, or when one exceeds its time
	endHandling context.CancelFunc
}

func (s *session) newRun(job lanes.Job) *run {
	r := &run{s: s, probe: job.Probe}
	r.ctx, r.cancel = context.WithCancelCause(s.hard)
	r.handling, r.endHandling = context.WithCancel(r.ctx)
	if first := job.Pieces[0]; len(first.Items) > 0 {
		r.record = first.Items[0].Record
	}
	for _, piece := range job.Pieces {
		if place := piece.Lane.Place(); len(r.places) == 0 || r.places[len(r.places)-1] != place {
			r.places = append(r.places, place)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[r] = struct{}{}
	return r
}

func (r *run) end() {
	r.s.mu.Lock()
	delete(r.s.running, r)
	r.s.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
	}
	r.endHandling()
	r.cancel(nil)
}

// hold makes a transaction the run's.
func (r *run) hold(tx *ledger.Tx) {
	r.watch = watch{tx: tx}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.tx = tx
}

// begin starts a handler's time.
func (r *run) begin(now time.Time) {
	timeout := r.s.c.config.HandlerTimeout
	if r.timer == nil {
		r.timer = time.AfterFunc(timeout, r.endHandling)
	} else {
		r.timer.Reset(timeout)
	}
	r.s.mu.Lock()
	r.since = now
	r.s.mu.Unlock()
}

// done ends it.
func (r *run) done(events int, took time.Duration) {
	r.timer.Stop()
	r.handled += events
	r.took += took
	r.s.mu.Lock()
	r.since = time.Time{}
	r.s.mu.Unlock()
}

// abandonOf is abandon for what runs for any of the places.
func (s *session) abandonOf(places map[lanes.Place]bool) {
	s.abandon(func(r *run) bool {
		return slices.ContainsFunc(r.places, func(at lanes.Place) bool { return places[at] })
	})
}

// cancelOf cuts off what runs for any of the places.
func (s *session) cancelOf(places map[lanes.Place]bool, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range s.running {
		for _, at := range r.places {
			if places[at] {
				r.cancel(why)
				break
			}
		}
	}
}
