// Package settle brings every event that was handed to the sink to its end: published and journaled, or parked for a
// later attempt, or a dead letter. It keeps what is in flight, commits outcomes to Postgres, and only then lets a
// ledger count them. It brings parked events back, holds lanes behind what was refused, parks the events of topics in
// trouble, and halts the relay when too many events die.
//
// It does not read the WAL, make messages of rows, or talk to a broker: dispatcher and encoder are the relay's, and
// the sink's engine knows brokers. Whether this process holds the slot it asks its [Host].
//
// The goroutines, all started and waited for by Run:
//
//	loop         owns the state: what is pending, which lanes are held, parked or drained (loop.go)
//	collect      takes results from the sink, for the loop
//	writeJournal two of them; commit journal rows
//	writeDead    commits dead letters, one by one
//	writeParks   commits parks, and failed attempts of parked events
//	retrier      reads parked events that are due, for the loop (retrier.go)
//	diverter     looks for topics in trouble (diverter.go)
//	breaker      commits that the breaker opened or closed, and probes (breaker.go)
//	trims        gives memory that no one uses to the garbage collector (delivery.go)
//
// Tested in fake time on a made-up store, by its promises and not file by file, and by the simulator.
package settle

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/internal/settle/frontier"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/retry"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Tables is the part of the store that settling uses; package store documents its methods.
type Tables interface {
	Settle(ctx context.Context, published []store.Published, dead []store.Dead) error
	SettleRetried(ctx context.Context, published []store.Published) error
	GiveUp(ctx context.Context, dead store.Dead) (behind int64, err error)

	Park(ctx context.Context, events []store.Parked) (parked int64, err error)
	RetryLater(ctx context.Context, failed []store.Attempt) error
	ParkedLanes(ctx context.Context) (lanes []store.Lane, events int64, err error)
	CountParked(ctx context.Context) (int64, error)
	DueLanes(ctx context.Context, limit int, without []string) (lanes []store.Lane, next time.Duration, err error)
	Portions(ctx context.Context, asks []store.Ask, limit, maxBytes int) ([]store.Portion, error)
	WakeHeads(ctx context.Context) error
	WaitingTopics(ctx context.Context) ([]store.WaitingTopic, error)
	MakeDue(ctx context.Context, topic string) (more bool, err error)

	Breaker(ctx context.Context, window time.Duration, apart []string) (store.BreakerState, error)
	OpenBreaker(ctx context.Context, said string) error
	CloseBreaker(ctx context.Context) error
}

// Host is the relay around the settler. Any goroutine of the package calls it, with no lock held but the breaker's.
type Host interface {
	// Owner is the session that has taken the slot over, nil when there is none. Streaming is the session in whose
	// course parked events may be retried, once what came again in its beginning is settled; nil: none.
	Owner() Session
	Streaming() Session
	Stopping() bool // no retries begin any more

	// CannotRecord notes that a kind of write fails, and reports whether that is news; Recorded, that it does not any
	// more.
	CannotRecord(what string, err error) (news bool)
	Recorded(what string)
	// Died notes an event that became a dead letter.
	Died(topic string, reason *sink.Reason)
	// Trace is told of results, in their order, before they are settled.
	Trace(records []*sink.Record)

	// Trip halts the relay while its session goes on; Lift ends that halt, if the relay is still in it.
	Trip(why *halt.Error)
	Lift(why *halt.Error)

	// AnsweredSince reports whether brokers have answered since then, as far as the driver knows.
	AnsweredSince(at time.Time) bool
}

// Session is one session of the relay; two are the same if they are equal.
type Session interface {
	// Heed takes in the error of a write that the session owned when it began: it may say that the session has lost
	// the slot.
	Heed(err error)
	// Announce has the state know the topics, so that records may go there.
	Announce(ctx context.Context, topics []string) error
	// Passed is up to which result of the sink, counted from 1, what came again in the session's beginning was handed
	// in, and one more; 0: not all of it was.
	Passed() uint64
	// Encoder is for the loop's goroutine.
	Encoder() Encoder
}

// Encoder makes messages of what comes from tables, not from the stream.
type Encoder interface {
	// Encode makes the record of a parked event, or sets the delivery's Reason: why it cannot be a message any more.
	Encode(d *Delivery, now time.Time)
	// Copy makes rec the copy of a dead letter, with a refusal without its value, or says why there is no topic for it.
	Copy(rec *sink.Record, d *Delivery, refusal *sink.Reason) *sink.Reason
}

// Meter counts. The loop's goroutine calls BeginResults and EndResults around a run of Acknowledged.
type Meter interface {
	BeginResults()
	// Acknowledged is told when the event was received, counted from Start, and when it was created, if that is known.
	Acknowledged(rec *sink.Record, received time.Duration, created int64, dated bool)
	EndResults()
	Journaled(events int, took time.Duration)
	Parked(events int) // parks, and failed attempts of parked events, that are committed
	Died(class outbox.ErrorClass)
	Retried(attempts int)
	Uncopied() // a dead letter that dlq.topic refused
}

// OutboxMeter counts by outbox, where a slot has several.
type OutboxMeter interface {
	Journaled(rows []store.Published)
	Died(source int32)
}

// Options configure a settler.
type Options struct {
	Config config.Config
	Retry  retry.Policy
	Logger zerolog.Logger
	Tables Tables
	Engine *sink.Engine
	Host   Host
	Meter  Meter

	Outboxes OutboxMeter // nil: no one counts by outbox
	Pulse    Pulse       // of the loop

	// ReadsBack: after a crash the relay finds in the topics what was sent and not journaled.
	ReadsBack bool
	// Old reports whether the stream delivers a backlog: someone waits for its end. Nil: it never does.
	Old func() bool
}

// Pulse is told when a goroutine begins to work and when it waits.
type Pulse interface {
	Works()
	Waits()
}

// Settler settles what one term of a relay hands to one engine. It is made whole and dropped whole: see relay's term.
type Settler struct {
	// Made by New, never changed.
	c        config.Config
	log      zerolog.Logger
	tables   Tables
	engine   *sink.Engine
	host     Host
	meter    Meter
	outboxes OutboxMeter
	inflight *Registry
	loop     *loop
	retrier  *retrier
	breaker  *breaker
	isCopies func(topic string) bool // of dead letters: dlq.topic

	gate     gate
	encoder  atomic.Pointer[Encoder] // of the last session, for copies of dead letters
	probes   probing
	diverted sync.Map     // topics with diverted events, and the reason
	loaded   bool         // a session of the term has diverted what was in trouble before; the supervisor's
	parked   atomic.Int64 // parked events, about: see retrier.tidy
	moving   atomic.Int64 // lanes of parked events that move; see parking
	// parkedUpTo is up to which result of the sink, counted from the first, all that was given back is parked.
	parkedUpTo atomic.Uint64
}

// New makes a settler; nothing is settled before Run.
func New(o Options) *Settler {
	s := &Settler{
		c: o.Config, log: o.Logger, tables: o.Tables, engine: o.Engine, host: o.Host, meter: o.Meter, outboxes: o.Outboxes,
		inflight: newRegistry(),
		isCopies: o.Config.DLQ.Matcher(),
	}
	s.retrier = newRetrier(s)
	s.breaker = newBreaker(s)
	s.loop = newLoop(s, o)
	return s
}

// Run settles until the context ends. What is unsettled then is found by the next start's look-ups.
func (s *Settler) Run(ctx context.Context) {
	var workers sync.WaitGroup
	for _, work := range []func(context.Context){s.loop.run, s.retrier.run, s.diverter, s.breaker.run, s.inflight.trims} {
		workers.Go(func() { work(ctx) })
	}
	workers.Wait()
}

// InFlight returns the in-flight events.
func (s *Settler) InFlight() *Registry { return s.inflight }

// Progress is told, without waiting, after each commit.
func (s *Settler) Progress() <-chan struct{} { return s.loop.progress }

// Recheck gives Progress a token though nothing was journaled: a server that crashed may have forgotten what was done
// since.
func (s *Settler) Recheck() { signal(s.loop.progress) }

// UseEncoder has copies of dead letters made as the session does that has just taken over.
func (s *Settler) UseEncoder(e Encoder) { s.encoder.Store(&e) }

// Wait returns when the dispatcher may hand in what it has: see gate.
func (s *Settler) Wait(ctx context.Context) { s.gate.wait(ctx) }

// TakeOffsets is below which offset of each partition all records of ours are journaled, where that changed since it
// was taken last. What cannot be saved is given back.
func (s *Settler) TakeOffsets() []store.Offset { return s.loop.journal.frontier.Take() }

// Expect notes how far the topic's partitions were journaled by the process before.
func (s *Settler) Expect(topic string, next map[int32]int64) {
	s.loop.journal.frontier.Expect(topic, next)
}

// TakeBehind hands out, once, the partitions that turned out to be shorter than they were.
func (s *Settler) TakeBehind() []frontier.Behind { return s.loop.journal.frontier.TakeBehind() }

// GiveBackOffsets takes back what was taken and not saved.
func (s *Settler) GiveBackOffsets(offsets []store.Offset) { s.loop.journal.frontier.GiveBack(offsets) }

// Parked is about how many events are parked.
func (s *Settler) Parked() int64 { return max(s.parked.Load(), 0) }

// AddParked counts parked events that another writer than the settler has put into the table, or with a negative
// number taken out of it.
func (s *Settler) AddParked(events int64) { s.parked.Add(events) }

// DueNow has parked events looked for that are due: some were made so.
func (s *Settler) DueNow() { s.retrier.dueIn(0) }

// Revisit has lanes looked at, at the next look, and given back to the live path if nothing of them is parked any
// more.
func (s *Settler) Revisit(lanes ...store.Lane) { s.retrier.revisit(lanes...) }

// Nudge has the retrier look at once.
func (s *Settler) Nudge() { s.retrier.nudge() }

// heed lets the session, if there is one, take in the error of a write that it owned.
func heed(s Session, err error) {
	if s != nil && err != nil {
		s.Heed(err)
	}
}
