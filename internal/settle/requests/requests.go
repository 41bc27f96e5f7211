// Package requests does what people asked for by commands or the API: replays and discards of dead letters, retries of
// parked events, looks at the whole table, what topics have lost published once more, pauses. Requests are rows of a
// table, so that they outlive processes; the package works them off one after another under the relay's epoch. It knows
// neither sessions nor the settler: it parks events again and makes them due, and what is parked is retried elsewhere.
//
// What it does is tested by package relay, on a real server, and by the simulator with its mutants.
package requests

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

const (
	// pauseBetween is the pause between two looks for requests: one look-up by an index that is empty most of the time.
	pauseBetween = 250 * time.Millisecond
	// restBetween is that pause while the stream tells of requests; older versions make some of which it does not.
	restBetween = 5 * time.Second
	// eagerFor is how long after such news the looks follow each other as usual: the stream may deliver a commit before
	// others see it.
	eagerFor = 5 * time.Second
)

// Tables is the part of the store that requests uses; package store documents its methods. A relay whose tables are not
// it has no requests.
type Tables interface {
	NextRequest(ctx context.Context) (*store.Request, error)
	StartRequest(ctx context.Context, r *store.Request) error
	NoteRequest(ctx context.Context, id, total, done int64) error
	FinishRequest(ctx context.Context, id int64, failed string) error
	ReplayDead(ctx context.Context, r *store.Request, from store.DeadCursor, limit int) (store.Step, error)
	DiscardDead(ctx context.Context, r *store.Request, from store.DeadCursor, limit int) (store.Step, error)
	RetryNow(ctx context.Context, r *store.Request, limit int) (int64, error)
	RepublishRows(ctx context.Context, r *store.Request, limit int) ([]store.CatchUpRow, error)
	Republish(ctx context.Context, r *store.Request, events []store.Parked) (parked int64, err error)
	SetPause(ctx context.Context, r *store.Request) (*store.Pause, error)
	Paused(ctx context.Context) (*store.Pause, error)
}

// Queue is the parked events. Any goroutine may call it.
type Queue interface {
	Parked() int64 // about how many
	AddParked(events int64)
	DueNow()                     // something of it is due, or may be
	Revisit(lanes ...store.Lane) // what held the lanes may be gone
	Nudge()
	// Resume lets go on what a flood of dead letters stopped, and does not count those of events committed until then.
	Resume(until time.Time)
}

// Session is one session of the relay; two are the same if they are equal.
type Session interface {
	// Heed takes in the error of a write that the session owned when it began.
	Heed(err error)
	// Passed is 0 until what came again in the session's beginning was handed to the sink.
	Passed() uint64
	// Era is that of the positions of the outbox's events, once Passed is not 0.
	Era(outbox int32) int64
}

// Host is the relay around the requests.
type Host interface {
	Asking() Session // the session that has taken the slot over; nil: there is none
	Stopping() bool
	// Hears reports whether the stream delivers at once what is committed, so that [Executor.Asked] is called soon.
	Hears() bool

	// CannotRecord notes that a kind of write fails, and reports whether that is news; Recorded, that it does not any
	// more.
	CannotRecord(what string, err error) (news bool)
	Recorded(what string)

	// Router finds topic and key of events of the outbox as it is now: by its number, 0 for the only one of a slot. It is
	// for one goroutine.
	Router(ctx context.Context, outbox int32) (Router, error)
	// Look looks at the whole table at once, and says how many rows nothing was recorded of, and how many the stream
	// had missed.
	Look(ctx context.Context) (unrecorded, missed int, err error)
}

// Router finds where an event goes. What it returns may share the event's memory, and holds until it is dropped.
type Router interface {
	Route(e *outbox.Event, now time.Time) (topic string, key []byte)
}

// Options configure an executor.
type Options struct {
	Config  config.Config
	Logger  zerolog.Logger
	Tables  Tables // nil: there are no requests
	Queue   Queue
	Host    Host
	Pausing *Pausing
}

// Executor does what people asked for by commands or the API, one request after another, but pauses and resumes at
// once. It works in portions, each a transaction under the epoch that also notes how far the request is: a process
// that dies leaves a request that the next one goes on with, and a process that lost the slot can do nothing.
//
// A replay parks the dead letter again, at the place that it had; the retrier does the rest. So replays of a key keep
// its order, and what its newer events do in the meantime does not matter: a replayed event is late, and says so in its
// header.
type Executor struct {
	c       config.Config
	log     zerolog.Logger
	tables  Tables
	queue   Queue
	host    Host
	pausing *Pausing
	asked   chan struct{} // has a token after Asked

	// Owned by Run.
	eager   time.Time // until then looks follow each other as usual
	session Session   // that request was begun in
	request int64     // being worked at; 0: none
	cursor  store.DeadCursor
	looking *look // at the whole table, for a reconcile; nil: none
	router  Router
	routed  Session // that router was made for
	routes  int32   // the outbox that router is of
}

// New makes an executor, for one term of a relay.
func New(o Options) *Executor {
	return &Executor{
		c: o.Config, log: o.Logger, tables: o.Tables, queue: o.Queue, host: o.Host, pausing: o.Pausing,
		asked: make(chan struct{}, 1),
	}
}

// Asked makes Run look now. Any goroutine may call it; it does not block.
func (e *Executor) Asked() {
	select {
	case e.asked <- struct{}{}:
	default:
	}
}

// Run executes requests until the context ends.
func (e *Executor) Run(ctx context.Context) {
	if e.tables == nil {
		return
	}
	defer func() { e.looking.end() }()
	for pause := pauseBetween; ; {
		select {
		case <-time.After(pause):
		case <-e.asked:
			e.eager = time.Now().Add(eagerFor)
		case <-ctx.Done():
			return
		}
		pause = pauseBetween
		s := e.host.Asking()
		if s == nil || e.host.Stopping() {
			continue
		}
		more, err := e.look(ctx, s)
		switch {
		case err == nil:
			e.host.Recorded("request")
			switch {
			case more:
				pause = 0
			case e.rests():
				pause = restBetween
			}
		case ctx.Err() != nil:
			return
		default:
			s.Heed(err)
			if errors.Is(err, store.ErrFenced) {
				continue
			}
			if e.host.CannotRecord("request", err) {
				e.log.Warn().Err(err).Msg("cannot execute requests of commands and the API; trying again")
			}
		}
	}
}

// rests reports whether looks may lie apart.
func (e *Executor) rests() bool {
	return e.request == 0 && !e.pausing.unsure.Load() && time.Now().After(e.eager) && e.host.Hears()
}

// look does the next portion of what is asked for, and reports whether there may be more.
func (e *Executor) look(ctx context.Context, s Session) (more bool, err error) {
	request, err := e.tables.NextRequest(ctx)
	switch {
	case err != nil:
		return false, err
	case e.pausing.unsure.Load():
		return true, e.Obey(ctx)
	case request == nil:
		return false, nil
	case request.Kind == store.RequestPause || request.Kind == store.RequestResume:
		return true, e.Obey(ctx)
	}
	if why := e.refuse(request); why != "" {
		return true, e.finish(ctx, request, why)
	}
	if e.session != s || e.request != request.ID {
		if err := e.tables.StartRequest(ctx, request); err != nil {
			return e.failed(ctx, request, err)
		}
		e.session, e.request, e.cursor = s, request.ID, store.DeadCursor{}
	}
	switch request.Kind {
	case store.RequestReplay:
		more, err = e.replay(ctx, request)
	case store.RequestDiscard:
		more, err = e.discard(ctx, request)
	case store.RequestRetry:
		more, err = e.retry(ctx, request)
	case store.RequestReconcile:
		more, err = e.reconcile(ctx, s, request)
	case store.RequestRepublish:
		more, err = e.republish(ctx, s, request)
	}
	if err != nil {
		return e.failed(ctx, request, err)
	}
	return more, nil
}

// refuse says why a request cannot be executed at all.
func (e *Executor) refuse(request *store.Request) string {
	switch request.Kind {
	case store.RequestReplay, store.RequestDiscard, store.RequestRetry:
	case store.RequestReconcile:
		return "" // of the whole table
	case store.RequestRepublish:
		if request.Unreadable == nil && (len(request.Filter.IDs) == 0 || request.Filter.Criteria() != "ids") {
			return "events to publish again must be chosen by ids"
		}
	default:
		return "this version of the relay does not support the request"
	}
	if request.Unreadable != nil {
		return "this version of the relay cannot read its filter: " + request.Unreadable.Error()
	}
	if err := request.Filter.Check(); err != nil {
		return err.Error()
	}
	return ""
}

// failed closes a request that cannot be done; anything else is tried again.
func (e *Executor) failed(ctx context.Context, request *store.Request, err error) (more bool, _ error) {
	if errors.Is(err, store.ErrFilter) || errors.Is(err, store.ErrCannot) {
		return true, e.finish(ctx, request, err.Error())
	}
	return false, err
}

func (e *Executor) finish(ctx context.Context, request *store.Request, failed string) error {
	if err := e.tables.FinishRequest(ctx, request.ID, failed); err != nil {
		return err
	}
	e.request = 0
	line := e.log.Info().Int64("request", request.ID).Str("kind", request.Kind).Str("who", request.Who)
	if failed != "" {
		line.Str("error", failed).Msg("request refused")
		return nil
	}
	line.Msg("request executed")
	return nil
}
