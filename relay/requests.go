package relay

import (
	"context"
	"errors"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay/internal/message"
	"github.com/cdc-relay/cdc-relay/store"
)

const (
	// requestsLook is the pause between two looks for requests: one look-up by an index that is empty most of the time.
	requestsLook = 250 * time.Millisecond
	// requestPortion is how many dead letters one transaction resolves, retryPortion how many parked events it makes due.
	requestPortion = 500
	retryPortion   = 5000
	// A replay leaves room for events that must be parked: it fills no more than this part of limits.parked_events.
	replayShare = 2
)

// requests is what the executor asks of the SQL side; see package store. Tables that are not it have no requests.
type requests interface {
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

// executor does what people asked for by commands or the API, one request after another, but pauses and resumes at once.
// It works in portions, each a transaction under the epoch that also notes how far the request is: a process that dies
// leaves a request that the next one goes on with, and a process that lost the slot can do nothing.
//
// A replay parks the dead letter again, at the place that it had; the retrier does the rest. So replays of a key keep its
// order, and what its newer events do meanwhile does not matter: a replayed event is late, and says so in its header.
type executor struct {
	r      *Relay
	term   *term
	tables requests

	// Owned by run.
	session *session // that request was begun in
	request int64    // being worked at; 0: none
	cursor  store.DeadCursor
	looking *look // at the whole table, for a reconcile; nil: none
	router  *message.Encoder
	routed  *session // that router was made for
}

func (t *term) execute(ctx context.Context) {
	tables, can := t.r.store.(requests)
	if !can {
		return
	}
	e := executor{r: t.r, term: t, tables: tables}
	defer func() { e.looking.end() }()
	for pause := requestsLook; ; {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = requestsLook
		s := t.owner()
		if s == nil || t.stopping.Load() {
			continue
		}
		more, err := e.look(ctx, s)
		switch {
		case err == nil:
			t.r.health.Recorded("request")
			if more {
				pause = 0
			}
		case ctx.Err() != nil:
			return
		default:
			s.heed(err)
			if errors.Is(err, store.ErrFenced) {
				continue
			}
			if t.r.health.CannotRecord("request", err) {
				t.r.log.Warn().Err(err).Msg("cannot execute requests of commands and API; they are tried again")
			}
		}
	}
}

// look does the next portion of what is asked for, and says whether there may be more.
func (e *executor) look(ctx context.Context, s *session) (more bool, err error) {
	request, err := e.tables.NextRequest(ctx)
	switch {
	case err != nil:
		return false, err
	case e.r.pausing.unsure.Load():
		return true, e.term.obey(ctx)
	case request == nil:
		return false, nil
	case request.Kind == store.RequestPause || request.Kind == store.RequestResume:
		return true, e.term.obey(ctx)
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
func (e *executor) refuse(request *store.Request) string {
	switch request.Kind {
	case store.RequestReplay, store.RequestDiscard, store.RequestRetry:
	case store.RequestReconcile:
		return "" // of the whole table
	case store.RequestRepublish:
		if request.Unreadable == nil && (len(request.Filter.IDs) == 0 || request.Filter.Criteria() != "ids") {
			return "what is to be published once more is chosen by ids, and by nothing else"
		}
	default:
		return "this version of the relay knows no such request"
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
func (e *executor) failed(ctx context.Context, request *store.Request, err error) (more bool, _ error) {
	if errors.Is(err, store.ErrFilter) {
		return true, e.finish(ctx, request, err.Error())
	}
	return false, err
}

func (e *executor) finish(ctx context.Context, request *store.Request, failed string) error {
	if err := e.tables.FinishRequest(ctx, request.ID, failed); err != nil {
		return err
	}
	e.request = 0
	line := e.r.log.Info().Int64("request", request.ID).Str("kind", request.Kind).Str("who", request.Who)
	if failed != "" {
		line.Str("error", failed).Msg("request refused")
		return nil
	}
	line.Msg("request executed")
	return nil
}

func (e *executor) replay(ctx context.Context, request *store.Request) (more bool, err error) {
	most, full := e.portion(requestPortion)
	if most <= 0 {
		return false, nil // until some of what is parked is published
	}
	step, err := e.tables.ReplayDead(ctx, request, e.cursor, most)
	if err != nil {
		return false, err
	}
	if step.Seen == 0 {
		return true, e.finish(ctx, request, "")
	}
	e.cursor = step.Next
	e.term.settler.AddParked(step.Parked)
	e.term.settler.DueNow()
	return !full, nil
}

// portion is how many events, at most so many, a request may park at this look, and whether the room is full. With retry.on_dead: hold
// one goes in all the same: what fills the room may be parked behind the very dead letters that are to be replayed, or behind
// dead letters of which a later request decides.
func (e *executor) portion(most int) (events int, full bool) {
	room := e.room()
	if room <= 0 && e.r.c.Retry.OnDead == config.OnDeadHold {
		return 1, true
	}
	return min(most, room), room <= 0
}

// room is how many events a replay may park now.
func (e *executor) room() int {
	parked := e.term.settler.Parked()
	if parked <= 0 {
		return max(e.r.c.Limits.ParkedEvents/replayShare, 1)
	}
	return int(int64(e.r.c.Limits.ParkedEvents/replayShare) - parked)
}

func (e *executor) discard(ctx context.Context, request *store.Request) (more bool, err error) {
	step, err := e.tables.DiscardDead(ctx, request, e.cursor, requestPortion)
	if err != nil {
		return false, err
	}
	if step.Seen == 0 {
		return true, e.finish(ctx, request, "")
	}
	e.cursor = step.Next
	if e.r.c.Retry.OnDead == config.OnDeadHold {
		for _, lane := range step.Lanes { // nothing holds it any more
			e.term.settler.Revisit(lane)
		}
		e.term.settler.Nudge()
	}
	return true, nil
}

func (e *executor) retry(ctx context.Context, request *store.Request) (more bool, err error) {
	n, err := e.tables.RetryNow(ctx, request, retryPortion)
	if err != nil {
		return false, err
	}
	if n == 0 {
		return true, e.finish(ctx, request, "")
	}
	e.term.settler.DueNow()
	return true, nil
}
