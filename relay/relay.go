// Package relay publishes the rows of an outbox table to a broker. A Go program creates a relay from a configuration
// and a driver for its broker, and runs it until its context ends. [Relay.Status] may be called at any time:
//
//	r, err := relay.New(cfg, driver)
//	if err != nil {
//		return err
//	}
//	return r.Run(ctx)
//
// Package install creates the database objects before the first run. For those who change this package, the path of an
// event from the WAL to the broker and back to Postgres:
//
//	         replication.Session         dispatcher (1 goroutine)         sink: lanes per partition, workers per broker
//	Postgres ──► WAL bytes ──batches──► decode → ledger.add → route ───► submit → batch → Kafka
//	   ▲                                   │ looked up until token H        │ published / rejected / held, in lane order
//	   │ standby status: write=flush=apply=▼                                ▼
//	   │            ledger.Confirmed()   in flight or recorded: not sent  settler
//	   └── journal │ parked │ dead letters (committed in batches) ◄──────── │ ──► ledger.done → Confirmed moves
//	          │        └── retrier: what is due, or well again, goes to the sink once more, from the head of its lane
//	          └── later, beside the path: the mirror sets published_at on the row, or deletes it
//
// An event is terminal when it is journaled, or parked, or its dead letter is committed, or it was found to be so
// already. Only then does its ledger entry count down, and only the ledger's Confirmed is ever told to the server: the
// stream pulls it; it is never pushed.
//
// The supervisor (term.go) runs sessions one after another. A session (session.go) is one replication connection:
// prepare (internal/bootstrap), take the lease, take over (takeover.go), read the topics back after a crash
// (internal/recovery), catch up if this is a start from the table (rows.go), look up what may come again, read
// (dispatch.go). What is in flight belongs to the term and outlives a session: the next session recognises it and
// attaches it to its own ledger. The settler and what brings parked events back (internal/settle), the requests of
// people, the mirror and the watch run as long as a term: when another relay has had the slot, all of it is dropped,
// and the next term begins as after a crash.
//
// Tested as a whole, on a real Postgres and a stand-in for Kafka.
package relay

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/run/bootstrap"
	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/internal/run/outboxes"
	"github.com/cdc-relay/cdc-relay/internal/settle/alarms"
	"github.com/cdc-relay/cdc-relay/internal/settle/requests"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/internal/upkeep/blockers"
	"github.com/cdc-relay/cdc-relay/internal/upkeep/reconcile"
	"github.com/cdc-relay/cdc-relay/internal/watch/health"
	"github.com/cdc-relay/cdc-relay/internal/watch/logqueue"
	"github.com/cdc-relay/cdc-relay/internal/watch/meter"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/sink"
)

// There are three lifetimes, each a type of its own. Nothing is reset: what ends is dropped.
//
//   - Relay is the process: made by New, ended by the end of Run. It holds no event.
//   - term (term.go) holds what may be in memory because no other relay has had the slot since. Run makes one after the
//     other.
//   - session (session.go) is one replication connection. The supervisor of a term makes one after the other.
//
// The supervisor is the goroutine that called Run: it makes and ends terms and sessions. Each term starts the
// goroutines that work beside its sessions, and waits for their ends before it ends itself. Status, metrics and the
// API ask from goroutines of their own, at any time: they see one term, whole, or none.
//
// Locks are leaves: who holds one takes no other, with these exceptions, always in this order:
//
//	settle's breaker.mu → health.State's
//	settle.Registry.mu → the mutex of an offsets.Ledger
//	the mutexes of meter's latencies → a mutex of settle or of the sink's engine

// Relay publishes one outbox through one slot. Create it with [New], then call Run once.
type Relay struct {
	// Made by New, never changed.
	c       config.Config
	version string
	log     zerolog.Logger
	driver  sink.Driver
	given
	started  time.Time
	postgres Postgres
	meter    *meter.Meter

	// Made by Run before the first term; opened is the same as store for the API, if it is a real one.
	store    Tables
	outboxes *outboxes.Tables // the same as store for several outboxes; nil: there is one
	opened   atomic.Pointer[store.Store]

	// Each guards itself.
	health     health.State
	pausing    *requests.Pausing
	alarms     *alarms.Keeper        // its run belongs to one term after the other, as the reconciler's
	blockers   *blockers.Watch       // the watch of one term after the other looks
	reconciler *reconcile.Reconciler // its run belongs to one term after the other
	caughtUp   atomic.Int64          // rows that catch-ups have published
	movedAt    atomic.Int64          // see moved; nanoseconds since started
	arrived    time.Time             // when restart.ErrArrived ended a term last; of the watch of one term after the other

	// Owned by the supervisor.
	last  bootstrap.LastSession
	older bootstrap.OlderRows // what a first start that is not allowed to publish so many has counted

	// term is the current one, nil before Run. Only the supervisor stores it.
	term atomic.Pointer[term]
}

// given are the hooks and checks that events pass.
type given struct {
	tracer Tracer                                 // nil: none
	misfit func(eventType, payload []byte) string // by message.schemas; nil: none

	registry Registry         // nil: the format needs none
	lines    *logqueue.Writer // of log; nil: not known

	concerns func() []Degradation // of the program; nil: none
	standbys *atomic.Int64        // relays of the process that stand by
}

// assemble makes a relay of what it is given, whatever that is worth; see New.
func assemble(o options) *Relay {
	r := &Relay{
		c: o.config, version: o.version, driver: o.driver, started: time.Now(),
		postgres: o.postgres, pausing: requests.NewPausing(),
		given: given{tracer: o.tracer, misfit: o.schemas.Misfit(), registry: o.registry, lines: o.lines,
			concerns: o.concerns, standbys: o.standbys},
	}
	if o.log != nil {
		r.log = *o.log
	}
	if r.postgres == nil {
		r.postgres = server{}
	}
	if r.standbys == nil {
		r.standbys = new(atomic.Int64)
	}
	repair := alarms.RepairOutbox
	if r.c.Outbox.Tables != "" {
		repair = alarms.RepairOutboxes
	}
	r.alarms, r.blockers = alarms.New(r.driver, repair), blockers.New(blockers.After, r.log)
	r.reconciler = reconcile.New(time.Duration(r.c.Reconcile.Interval), r.log)
	r.meter = r.newMeter(o.version)
	r.health.Enter(RoleStarting)
	return r
}

// Run relays until the context ends, then stops in order: it stops reading, sends and records in-flight events within
// the grace period, confirms the position and closes the connections. It returns nil after a stop, a *Halt if on_halt
// is exit, [ErrGraceOver] if the stop took longer than the grace period, or an error if it could not start.
func (r *Relay) Run(ctx context.Context) (err error) {
	defer r.flushLog()
	defer r.meter.Leave()
	defer r.closeRegistry()
	if r.store, err = r.postgres.OpenTables(ctx, StoreConfig(r.c)); err != nil {
		return errors.Join(fmt.Errorf("open the store: %w", err), r.driver.Close())
	}
	defer r.store.Close()
	if real, ok := r.store.(*store.Store); ok {
		r.opened.Store(real)
		r.store = allTables(r.c, real, r.log)
	}
	if all, ok := r.store.(interface{ Several() *outboxes.Tables }); ok {
		r.outboxes = all.Several()
	}
	graceOver, endGrace := context.WithCancel(context.WithoutCancel(ctx))
	defer endGrace()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(time.Duration(r.c.ShutdownGrace), endGrace) })()
	for {
		t := newTerm(r)
		r.term.Store(t)
		err := t.run(ctx, func() <-chan struct{} {
			if ctx.Err() == nil {
				time.AfterFunc(time.Duration(r.c.ShutdownGrace), endGrace)
			}
			return graceOver.Done()
		})
		if !endsTerm(err) {
			return err
		}
		r.health.Forget()
		r.dismissed()
	}
}

// logPatience bounds the wait at the end of Run for its last log lines to be read.
const logPatience = time.Second

func (r *Relay) flushLog() {
	if r.lines != nil {
		r.lines.Flush(logPatience)
	}
}

// session is the current session, nil when there is none.
func (r *Relay) session() *session {
	if t := r.term.Load(); t != nil {
		return t.session.Load()
	}
	return nil
}

// owner is the current session if it has taken over; nil if there is none.
func (r *Relay) owner() *session {
	if t := r.term.Load(); t != nil {
		return t.owner()
	}
	return nil
}

// stopped turns the last session's error into Run's result. It is logged, not returned, because the next start finds
// what is missing; except for a drain that ran out of time, since the grace may be too short.
func (r *Relay) stopped(err error) error {
	if errors.Is(err, ErrGraceOver) && r.inFlight() > 0 {
		return err
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		r.log.Warn().Err(err).Msg("stopped with work left; the next start looks up what was recorded and sends the rest")
	} else {
		r.log.Info().Msg("stopped")
	}
	return nil
}

func (r *Relay) standBy(busy *replication.SlotBusyError) {
	if r.health.Enter(RoleStandby) {
		r.dismissed()
		r.log.Info().Str("slot", busy.Slot).Int64("active_pid", busy.PID).Msg("another relay holds the slot; standing by")
	}
}

func (r *Relay) halted(h *halt.Error) {
	if r.health.Halt(h) {
		r.log.Error().Str("code", h.Code).Str("reason", h.Reason).Str("risk", h.Risk).Str("remedy", h.Remedy).
			Str("page", h.Page()).Msg("halted")
	}
}
