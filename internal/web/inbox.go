package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/internal/web/consumers"
)

// inbox answers what consumers hold back, and has it replayed or discarded. What is asked for is done at once, by the
// functions of the inbox: the relay has no part in it.
type inbox struct {
	guard guard
}

func (i inbox) register(mux *http.ServeMux) {
	mux.HandleFunc("GET /api/v1/inbox", i.consumers)
	mux.HandleFunc("GET /api/v1/inbox/events", i.events)
	mux.HandleFunc("GET /api/v1/inbox/events/{id}", i.event)
	mux.HandleFunc("GET /api/v1/inbox/count", i.count)
	for path, kind := range map[string]string{
		"/api/v1/inbox/replay": consumers.Replay, "/api/v1/inbox/discard": consumers.Discard,
	} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, req *http.Request) { i.change(w, req, kind) })
	}
}

var errNoDesk = fmt.Errorf("%w: this program shows nothing of consumers", consumers.ErrNoInbox)

// tell answers what read gives, unless the query was wrong.
func (i inbox) tell(w http.ResponseWriter, req *http.Request, wrong error,
	read func(context.Context, *consumers.Desk) (any, error)) {
	if wrong != nil {
		fail(w, http.StatusBadRequest, wrong)
		return
	}
	if i.guard.c.Inbox == nil {
		fail(w, http.StatusNotFound, errNoDesk)
		return
	}
	ctx, cancel := context.WithTimeout(req.Context(), lookupTimeout)
	defer cancel()
	body, err := read(ctx, i.guard.c.Inbox)
	if err != nil {
		fail(w, codeOfInbox(err), err)
		return
	}
	answer(w, http.StatusOK, body)
}

// codeOfInbox is the answer's code for an error of the desk.
func codeOfInbox(err error) int {
	switch {
	case errors.Is(err, consumers.ErrNoInbox), errors.Is(err, consumers.ErrNoConsumer),
		errors.Is(err, consumers.ErrNoEvent):
		return http.StatusNotFound
	case errors.Is(err, consumers.ErrBusy), errors.Is(err, consumers.ErrDenied):
		return http.StatusConflict
	}
	return codeOf(err)
}

func (i inbox) consumers(w http.ResponseWriter, req *http.Request) {
	q := query{values: req.URL.Query()}
	i.tell(w, req, q.end(), func(ctx context.Context, d *consumers.Desk) (any, error) {
		all, err := d.Consumers(ctx)
		return store.Page[consumers.Consumer]{Items: append([]consumers.Consumer{}, all...)}, err
	})
}

// inboxFilter returns the parameters that choose events of a consumer.
func (q *query) inboxFilter() (consumer, state string, f consumers.Filter) {
	consumer, state = q.take("consumer"), q.take("state")
	if consumer == "" {
		q.errs = append(q.errs, errors.New("consumer: missing; /api/v1/inbox lists them"))
	}
	if state == "" {
		state = consumers.Dead
	}
	f.Type, f.Class, f.Topic = q.take("type"), q.take("class"), q.take("topic")
	if key := q.take("key"); q.values.Has("key") {
		f.Key = &key
	}
	q.known = append(q.known, "id")
	f.IDs = q.values["id"]
	f.OlderThan, f.NewerThan = q.age("older_than"), q.age("newer_than")
	return consumer, state, f
}

func (i inbox) events(w http.ResponseWriter, req *http.Request) {
	q := query{values: req.URL.Query()}
	consumer, state, f := q.inboxFilter()
	limit, after := q.limit(), q.take("after")
	i.tell(w, req, q.end(), func(ctx context.Context, d *consumers.Desk) (any, error) {
		return d.Events(ctx, consumer, state, f, after, limit)
	})
}

func (i inbox) event(w http.ResponseWriter, req *http.Request) {
	q := query{values: req.URL.Query()}
	consumer, payload := q.take("consumer"), q.take("payload")
	if payload != "" && payload != "text" {
		q.errs = append(q.errs, fmt.Errorf("payload: found %.20q; allowed: text", payload))
	}
	i.tell(w, req, q.end(), func(ctx context.Context, d *consumers.Desk) (any, error) {
		whole, err := d.Event(ctx, consumer, req.PathValue("id"))
		if err != nil {
			return nil, err
		}
		whole.Hidden = i.guard.c.HidePayloads
		if payload == "text" && !whole.Hidden {
			return textualEvent(whole)
		}
		return whole, nil
	})
}

// countedEvents is how many events of a consumer a change would concern. With the time as the filter's until, it
// concerns these.
type countedEvents struct {
	Kind     string    `json:"kind"`
	Consumer string    `json:"consumer"`
	State    string    `json:"state"`
	Count    int64     `json:"count"`
	Until    time.Time `json:"until"`
}

func (i inbox) count(w http.ResponseWriter, req *http.Request) {
	q := query{values: req.URL.Query()}
	kind := q.take("kind")
	consumer, state, f := q.inboxFilter()
	if !slices.Contains(consumers.Kinds, kind) {
		q.errs = append(q.errs, fmt.Errorf("kind: found %.20q; allowed: %s", kind, strings.Join(consumers.Kinds, ", ")))
	}
	i.tell(w, req, q.end(), func(ctx context.Context, d *consumers.Desk) (any, error) {
		n, at, err := d.Count(ctx, consumer, state, f)
		return countedEvents{kind, consumer, state, n, at}, err
	})
}

// askedOfInbox is the body of a change of a consumer's events.
type askedOfInbox struct {
	Consumer string            `json:"consumer"`
	State    string            `json:"state"` // empty: dead letters
	IDs      []string          `json:"ids"`
	Filter   *consumers.Filter `json:"filter"`
	All      bool              `json:"all"`
	Note     string            `json:"note"`
	Who      string            `json:"who"` // as of the other changes
}

// filter returns the events of the change: ids, a filter, or all.
func (b askedOfInbox) filter() (f consumers.Filter, err error) {
	given := 0
	if b.IDs != nil {
		given, f.IDs = given+1, b.IDs
	}
	if b.Filter != nil {
		given, f = given+1, *b.Filter
	}
	if b.All {
		given, f.All = given+1, true
	}
	if given != 1 {
		return f, errOneOf
	}
	return f, f.Check()
}

func (i inbox) change(w http.ResponseWriter, req *http.Request, kind string) {
	by, code, err := i.guard.mayChange(req)
	if err != nil {
		i.guard.refuse(w, req, code, err)
		return
	}
	var body askedOfInbox
	if !readJSON(w, req, &body) {
		return
	}
	f, err := body.filter()
	if body.State == "" {
		body.State = consumers.Dead
	}
	who := by.who(body.Who, req.RemoteAddr)
	i.tell(w, req, err, func(ctx context.Context, d *consumers.Desk) (any, error) {
		done, err := d.Do(ctx, consumers.Change{
			Kind: kind, Consumer: body.Consumer, State: body.State, Filter: f, Who: who, Note: body.Note,
		})
		// As of the other changes: not the values of the filter, and never the token.
		i.guard.c.Logger.Info().Str("audit", "inbox "+kind).Str("consumer", body.Consumer).Str("state", body.State).
			Int("done", done.Done).Str("who", who).Str("from", req.RemoteAddr).Str("chosen_by", f.Criteria()).
			AnErr("error", err).Msg("events of a consumer changed over HTTP")
		return done, err
	})
}
