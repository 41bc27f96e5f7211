package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
)

const (
	usualPage     = 50
	largestPage   = 1000
	lookupTimeout = 10 * time.Second // of what a request asks of Postgres
	// readers is how many lists are read at once. They use the relay's own connections; half of those are left to
	// the lease and the journal however many ask for a list that takes seconds.
	readers = 2
)

var errManyRead = errors.New("others read lists for longer than this request waits; ask again")

// lists answers what is parked, what is dead, and what became of a request.
type lists struct {
	c     Config
	r     *relay.Relay
	turns chan struct{} // holds a token for each list that is read
}

func (l lists) register(mux *http.ServeMux) {
	mux.HandleFunc("GET /api/v1/alarms", l.alarms)
	mux.HandleFunc("GET /api/v1/parked", l.parked)
	mux.HandleFunc("GET /api/v1/dlq", l.dead)
	mux.HandleFunc("GET /api/v1/dlq/reasons", l.reasons)
	mux.HandleFunc("GET /api/v1/dlq/{id}", l.deadLetter)
	mux.HandleFunc("GET /api/v1/requests/{id}", l.request)
	mux.HandleFunc("GET /api/v1/find", l.find)
	mux.HandleFunc("GET /api/v1/count", l.count)
}

func (l lists) parked(w http.ResponseWriter, req *http.Request) {
	q := query{values: req.URL.Query()}
	f, limit, after := q.filter(), q.limit(), q.take("after")
	of := q.take("outbox")
	l.list(w, req, of, q.end(), func(ctx context.Context, s *store.Store) (any, error) {
		return s.ParkedKeys(ctx, f, after, limit)
	})
}

func (l lists) dead(w http.ResponseWriter, req *http.Request) {
	q := query{values: req.URL.Query()}
	f, limit, after, state := q.filter(), q.limit(), q.take("after"), q.take("state")
	if state == "" {
		state = store.DeadOpen
	}
	of := q.take("outbox")
	l.list(w, req, of, q.end(), func(ctx context.Context, s *store.Store) (any, error) {
		return s.DeadLetters(ctx, f, state, after, limit)
	})
}

// reasons answers for what dead letters died, and how many did.
func (l lists) reasons(w http.ResponseWriter, req *http.Request) {
	q := query{values: req.URL.Query()}
	f, state := q.filter(), cmp.Or(q.take("state"), store.DeadOpen)
	of := q.take("outbox")
	l.list(w, req, of, q.end(), func(ctx context.Context, s *store.Store) (any, error) {
		found, err := s.DeadReasons(ctx, f, state)
		return map[string][]store.DeadReason{"items": found}, err
	})
}

// counted is how many events a change would concern. With the time as the filter's until, it concerns these.
type counted struct {
	Kind  string    `json:"kind"`
	Count int64     `json:"count"`
	Until time.Time `json:"until"`
}

func (l lists) count(w http.ResponseWriter, req *http.Request) {
	q := query{values: req.URL.Query()}
	kind, f := q.take("kind"), q.filter()
	kinds := []string{store.RequestReplay, store.RequestDiscard, store.RequestRetry}
	if !slices.Contains(kinds, kind) {
		q.errs = append(q.errs, fmt.Errorf("kind: found %.20q; allowed: %s", kind, strings.Join(kinds, ", ")))
	}
	of := q.take("outbox")
	l.list(w, req, of, q.end(), func(ctx context.Context, s *store.Store) (any, error) {
		n, at, err := s.CountUntil(ctx, kind, f)
		return counted{kind, n, at}, err
	})
}

func (l lists) deadLetter(w http.ResponseWriter, req *http.Request) {
	l.list(w, req, req.URL.Query().Get("outbox"), nil, func(ctx context.Context, s *store.Store) (any, error) {
		d, err := s.DeadLetter(ctx, req.PathValue("id"))
		if err != nil {
			return nil, err
		}
		switch {
		case l.c.HidePayloads:
			return hidden{d.DeadLetter, true}, nil
		case req.URL.Query().Get("payload") == "text":
			return textual(d)
		}
		return d, nil
	})
}

// hidden is a dead letter without what it would send.
type hidden struct {
	store.DeadLetter
	PayloadHidden bool `json:"payload_hidden"`
}

func (l lists) request(w http.ResponseWriter, req *http.Request) {
	id, err := strconv.ParseInt(req.PathValue("id"), 10, 64)
	if err != nil {
		fail(w, http.StatusNotFound, store.ErrNoRequest)
		return
	}
	l.list(w, req, "", nil, func(ctx context.Context, s *store.Store) (any, error) {
		r, err := s.Request(ctx, id)
		if err == nil {
			err = s.Outcomes(ctx, r)
		}
		return r, err
	})
}

// list answers what read gives of the outbox, or without a name of all, unless the query was wrong.
func (l lists) list(w http.ResponseWriter, req *http.Request, outbox string, wrong error,
	read func(context.Context, *store.Store) (any, error)) {
	s := l.r.Store()
	switch {
	case wrong != nil:
		fail(w, http.StatusBadRequest, wrong)
		return
	case s == nil:
		fail(w, http.StatusServiceUnavailable, errors.New("the relay is starting"))
		return
	}
	ctx, cancel := context.WithTimeout(req.Context(), lookupTimeout)
	defer cancel()
	select {
	case l.turns <- struct{}{}:
		defer func() { <-l.turns }()
	case <-ctx.Done():
		fail(w, http.StatusServiceUnavailable, errManyRead)
		return
	}
	var body any
	s, err := s.Named(ctx, outbox)
	if err == nil {
		body, err = read(ctx, s)
	}
	if err != nil {
		fail(w, codeOf(err), err)
		return
	}
	answer(w, http.StatusOK, body)
}

// codeOf is the answer's code for an error of the store.
func codeOf(err error) int {
	switch {
	case errors.Is(err, store.ErrNoDeadLetter), errors.Is(err, store.ErrNoRequest), errors.Is(err, store.ErrNoAlarm),
		errors.Is(err, store.ErrNoOutbox):
		return http.StatusNotFound
	case errors.Is(err, store.ErrCursor), errors.Is(err, store.ErrFilter), errors.Is(err, store.ErrEdit):
		return http.StatusBadRequest
	case errors.Is(err, store.ErrCannot):
		return http.StatusConflict
	}
	return http.StatusServiceUnavailable
}

func fail(w http.ResponseWriter, code int, err error) {
	answer(w, code, map[string]string{"error": err.Error()})
}

// query reads the parameters of a list; end says what was wrong with them.
type query struct {
	values url.Values
	known  []string
	errs   []error
}

// take gives the parameter's value, "" when it is not there.
func (q *query) take(name string) string {
	q.known = append(q.known, name)
	if len(q.values[name]) > 1 {
		q.errs = append(q.errs, fmt.Errorf("%s is given %d times", name, len(q.values[name])))
	}
	return q.values.Get(name)
}

func (q *query) filter() (f store.Filter) {
	f.Type, f.Class, f.Topic = q.take("type"), q.take("class"), q.take("topic")
	f.Aggregate, f.Position, f.Code = q.take("aggregate"), q.take("position"), q.take("code")
	if key := q.take("key"); q.values.Has("key") {
		f.Key = &key
	}
	q.known = append(q.known, "id")
	f.IDs = q.values["id"]
	f.OlderThan, f.NewerThan = q.age("older_than"), q.age("newer_than")
	return f
}

func (q *query) age(name string) store.Age {
	text := q.take(name)
	if text == "" {
		return 0
	}
	age, err := store.ParseAge(text)
	if err != nil {
		q.errs = append(q.errs, fmt.Errorf("%s: %w", name, err))
	}
	return age
}

func (q *query) limit() int {
	text := q.take("limit")
	if text == "" {
		return usualPage
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > largestPage {
		q.errs = append(q.errs, fmt.Errorf("limit: want 1 to %d", largestPage))
	}
	return n
}

// end refuses parameters that no one reads: a filter that is misspelt must not become the whole list.
func (q *query) end() error {
	for name := range q.values {
		if !slices.Contains(q.known, name) {
			q.errs = append(q.errs, fmt.Errorf("unknown parameter %q; known: %s", name, strings.Join(q.known, ", ")))
		}
	}
	return errors.Join(q.errs...)
}
