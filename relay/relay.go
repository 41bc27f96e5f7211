// Package relay composes the path of an event from the WAL to Kafka and back to Postgres:
//
//	           replication.Session               dispatcher (1 goroutine)                   sink: lanes per partition, workers per broker
//	Postgres ──► WAL bytes ──chan of batches──► decode → ledger.add → route ───────────► submit → batch → Kafka
//	   ▲                                          │ looked up until the token H           │ published / rejected / held, in order per lane
//	   │ standby status: write=flush=apply=       ▼                                       ▼
//	   │                 ledger.Confirmed()     found in flight or recorded: not sent   settler
//	   └──── journal │ parked │ dead letters (committed in batches) ◄──────────────────── │ ──► ledger.done → Confirmed moves
//	           │         └── retrier: what is due, or well again, goes to the sink once more, from the head of its lane
//	           └── later, beside the path: the mirror sets published_at on the row, or deletes it
//
// An event is terminal when it is journaled, or parked, or its dead letter is committed, or it was found to be so already.
// Only then does its ledger entry count down, and only the ledger's Confirmed is ever told to the server: the stream pulls
// it, nobody pushes.
//
// The supervisor in this file runs sessions one after another. A session (session.go) is one replication connection:
// prepare (setup.go), take the lease, take over, read the topics back after a crash (tails.go), catch up if this is a
// start from the table (catchup.go), look up what may come again, read (dispatch.go). What is in flight belongs to the
// process and outlives a session (delivery.go): the next session recognises it and attaches it to its own ledger. The
// settler (settle.go, deaths.go, aside.go), what brings parked events back (parking.go, retrier.go, diverter.go), the
// mirror and the watch run as long as the process. All of it is made anew (life.go) when another relay had the slot meanwhile.
package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay/internal/halt"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/store"
)

// Options is what a relay is made of.
type Options struct {
	Config  config.Config
	Driver  sink.Driver // the broker; Run closes it
	Logger  zerolog.Logger
	Version string

	Postgres Postgres // nil: the servers that Config names
	Tracer   Tracer   // nil: nobody is told of each event
}

// Relay relays one outbox through one slot. Make it with New, then call Run once.
type Relay struct {
	c       config.Config
	version string
	log     zerolog.Logger
	driver  sink.Driver
	metrics *metrics
	tracer  Tracer // nil: none
	started time.Time

	engine   *sink.Engine
	postgres Postgres
	store    Tables
	inflight *registry
	settler  *settler
	health   health
	lease    lease
	retrier  *retrier

	reconciler *reconciler
	intake     intake
	pausing    pausing
	breaker    *breaker
	copier     atomic.Pointer[router] // of the last session, for copies of dead letters; the settler's
	diverted   sync.Map               // topics of which something is diverted, with the reason
	parked     atomic.Int64           // parked events, about: see retrier.tidy
	moving     atomic.Int64           // lanes of parked events that move; see parking
	// asideUpTo is up to which result of the sink, counted from the first, all that was given back is parked.
	asideUpTo atomic.Uint64
	stopping  atomic.Bool  // no retries any more
	rowsLeft  atomic.Int64 // outbox rows to be marked or deleted, as read last
	caughtUp  atomic.Int64 // rows that catch-ups of this process have published

	// Of this life; owned by the supervisor's goroutine.
	epoch    int64       // of its last take-over; 0: none
	informed bool        // it knows what the topics hold beyond the journal
	timeline int32       // of the server of which it knows that; 0: none
	last     LastSession // of this process; owned by the supervisor's goroutine
	older    olderRows   // what a first start that is not allowed to publish so many has counted

	dispatching, settling pulse        // of the goroutines of the hot path
	submitting            pulse        // of the dispatcher while it hands events to the sink
	movedAt               atomic.Int64 // see moved; nanoseconds since 1970

	running        atomic.Pointer[sink.Engine] // engine, once there is one: for status
	opened         atomic.Pointer[store.Store] // store, once there is one, if it is a real one: for the API
	eventsReceived atomic.Uint64
	age            atomic.Int64 // microseconds, see streamAge
	unread         unread
	oldestParked   atomic.Int64 // when it was parked, microseconds since the Unix epoch, as read last; 0: none
	eventBytes     atomic.Int64 // of WAL, on average; 0: not known
	delivered      atomic.Int64 // when the stream delivered events last, Unix nanoseconds; see streamOld

	// session is the current one, nil between two. Only the supervisor's goroutine stores it.
	session atomic.Pointer[session]
}

// New makes a relay that has connected to nothing yet. The configuration must be valid.
func New(o Options) *Relay {
	r := &Relay{
		c: o.Config, version: o.Version, log: o.Logger, driver: o.Driver, started: time.Now(),
		inflight: newRegistry(), postgres: o.Postgres, tracer: o.Tracer, pausing: pausing{obeying: make(chan struct{}, 1)},
	}
	if r.postgres == nil {
		r.postgres = server{}
	}
	r.reconciler = newReconciler(r)
	r.movedAt.Store(r.started.UnixNano())
	for _, p := range []*pulse{&r.dispatching, &r.settling, &r.submitting} {
		p.origin = r.started
	}
	r.metrics = newMetrics(r)
	r.health.enter(RoleStarting)
	return r
}

// Run relays until the context ends, then stops in order: no more reading, what is in flight is drained and recorded
// within the grace, the position is confirmed, the connections close. It returns nil after a stop, a *Halt when on_halt
// is exit, or an error when it could not even begin.
func (r *Relay) Run(ctx context.Context) (err error) {
	if r.store, err = r.postgres.OpenTables(ctx, StoreConfig(r.c)); err != nil {
		return errors.Join(fmt.Errorf("open the store: %w", err), r.driver.Close())
	}
	defer r.store.Close()
	if real, ok := r.store.(*store.Store); ok {
		r.opened.Store(real)
	}
	graceOver, endGrace := context.WithCancel(context.WithoutCancel(ctx))
	defer endGrace()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(time.Duration(r.c.ShutdownGrace), endGrace) })()
	for {
		err := r.live(ctx, func() <-chan struct{} {
			if ctx.Err() == nil {
				time.AfterFunc(time.Duration(r.c.ShutdownGrace), endGrace)
			}
			return graceOver.Done()
		})
		if !errors.Is(err, errSuperseded) {
			return err
		}
	}
}

// standbyPoll is how often a standby looks whether the slot is free.
const standbyPoll = 250 * time.Millisecond

// supervise runs one session after another until the context ends.
func (r *Relay) supervise(ctx context.Context) error {
	var row failures
	for {
		begun := time.Now()
		err := r.runSession(ctx)
		switch {
		case ctx.Err() != nil:
			return r.stopped(err)
		case errors.Is(err, errSuperseded):
			return err
		}
		lasted, role := time.Since(begun), r.health.role()
		busy, standby := errors.AsType[*replication.SlotBusyError](err)
		stop := halt.Of(err)
		if stop != nil && r.repaired(ctx, err) {
			stop = nil
		}
		pause := row.next(lasted, role, err, stop != nil)
		switch {
		case standby:
			r.standBy(busy)
			pause, row = spread(standbyPoll), failures{}
		case stop != nil:
			r.halted(stop)
			if r.c.OnHalt == config.OnHaltExit {
				return stop
			}
		default:
			reason := restartReason(err)
			r.metrics.restarts.WithLabelValues(reason).Inc()
			if news, unsaid := r.health.trouble(reason, err); news {
				r.log.Warn().Err(err).Str("reason", reason).Dur("retry_in", pause).Int("repeated", unsaid).Msg("stream ended; starting a new session")
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return r.stopped(nil)
		}
	}
}

// stopped is the end that was asked for: an error of the last session, such as a drain that ran out of time, is said
// and is no failure, because the next start finds what is missing.
func (r *Relay) stopped(err error) error {
	if err != nil && !errors.Is(err, context.Canceled) {
		r.log.Warn().Err(err).Msg("stopped with work left; the next start looks up what was recorded and sends the rest")
	} else {
		r.log.Info().Msg("stopped")
	}
	return nil
}

func (r *Relay) standBy(busy *replication.SlotBusyError) {
	if r.health.enter(RoleStandby) {
		r.dismissed()
		r.log.Info().Str("slot", busy.Slot).Int64("active_pid", busy.PID).Msg("another relay holds the slot; standing by")
	}
}

func (r *Relay) halted(h *halt.Error) {
	if r.health.halt(h) {
		r.log.Error().Str("code", h.Code).Str("reason", h.Reason).Str("risk", h.Risk).Str("remedy", h.Remedy).Str("page", h.Page()).Msg("halted")
	}
}
