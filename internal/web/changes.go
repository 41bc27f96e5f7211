package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
)

// largestBody bounds what a change may send: some 20,000 ids.
const largestBody = 1 << 20

// changes takes what people ask of the relay that holds the slot, and writes it down as requests. It changes nothing
// else but what dead letters send.
type changes struct {
	guard guard
	r     *relay.Relay
}

func (c changes) register(mux *http.ServeMux) {
	for path, kind := range map[string]string{
		"/api/v1/dlq/replay": store.RequestReplay, "/api/v1/dlq/discard": store.RequestDiscard,
		"/api/v1/retry": store.RequestRetry,
		"/api/v1/pause": store.RequestPause, "/api/v1/resume": store.RequestResume,
	} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, req *http.Request) { c.take(w, req, kind) })
	}
	mux.HandleFunc("POST /api/v1/alarms/ack", c.acknowledge)
	mux.HandleFunc("POST /api/v1/dlq/{id}/edit", c.edit)
	mux.HandleFunc("POST /api/v1/dlq/edit", c.editAll)
}

// asked is the body of a change of events.
type asked struct {
	IDs    []string      `json:"ids"`
	Filter *store.Filter `json:"filter"`
	All    bool          `json:"all"`

	Outbox   string `json:"outbox"`    // that has the events, if the slot has several
	UntilNow bool   `json:"until_now"` // of a resume
	Note     string `json:"note"`
	Who      string `json:"who"` // who says to ask; the token alone proves that it may. A session says it itself
}

// mayEdit is permitted, for a change of what dead letters send, which a listener that shows no payloads refuses.
func (c changes) mayEdit(w http.ResponseWriter, req *http.Request, into any) (s *store.Store, by caller, ok bool) {
	if s, by, ok = c.permitted(w, req, into); ok && c.guard.c.HidePayloads {
		fail(w, http.StatusForbidden, errors.New("payloads are neither shown nor edited here: http.show_payloads is false; "+
			"use cdc-relay dlq edit"))
		return nil, by, false
	}
	return s, by, ok
}

// permitted reads the body of a change into what it is, if the client may change anything and has sent one, and says
// whose it is; else it has answered.
func (c changes) permitted(w http.ResponseWriter, req *http.Request, into any) (s *store.Store, by caller, ok bool) {
	by, code, err := c.guard.mayChange(req)
	if err != nil {
		c.guard.refuse(w, req, code, err)
		return nil, by, false
	}
	if !readJSON(w, req, into) {
		return nil, by, false
	}
	if s = c.r.Store(); s == nil {
		fail(w, http.StatusServiceUnavailable, errors.New("the relay is starting"))
		return nil, by, false
	}
	return s, by, true
}

// readJSON reads a body; if it is none, it has answered.
func readJSON(w http.ResponseWriter, req *http.Request, into any) bool {
	if kind, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		fail(w, http.StatusUnsupportedMediaType,
			errors.New("want a body of JSON, with the header Content-Type: application/json"))
		return false
	}
	err := readBody(http.MaxBytesReader(w, req.Body, largestBody), into)
	if tooLarge, is := errors.AsType[*http.MaxBytesError](err); is {
		fail(w, http.StatusRequestEntityTooLarge,
			fmt.Errorf("the body is larger than %d bytes: ask in parts, or by a filter", tooLarge.Limit))
		return false
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return false
	}
	return true
}

func (c changes) take(w http.ResponseWriter, req *http.Request, kind string) {
	var body asked
	s, by, ok := c.permitted(w, req, &body)
	if !ok {
		return
	}
	f, err := body.filter(kind)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	ctx, cancel := context.WithTimeout(req.Context(), lookupTimeout)
	defer cancel()
	who := by.who(body.Who, req.RemoteAddr)
	var id int64
	if s, err = s.Named(ctx, body.Outbox); err == nil {
		id, err = s.AddRequest(ctx, kind, f, who, body.Note)
	}
	if err != nil {
		fail(w, codeOf(err), err)
		return
	}
	// Who, from where, what; not the values of the filter, which may be data of events, and never the token.
	c.guard.c.Logger.Info().Str("audit", kind).Int64("request", id).Str("who", who).Str("from",
		req.RemoteAddr).Str("chosen_by", f.Criteria()).Msg("change asked for over HTTP")
	answer(w, http.StatusAccepted, map[string]int64{"request": id})
}

func readBody(r io.Reader, into any) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("read the body: %w", err)
	}
	if !utf8.Valid(text) { // the decoder would put other characters in the place of the broken ones
		return errors.New("read the body: it is not UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("read the body: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		if err != nil {
			return fmt.Errorf("read the body: %w", err)
		}
		return errors.New("read the body: unexpected data after the object")
	}
	return nil
}

var errOneOf = errors.New(`want one of {"ids": […]}, {"filter": {…}} and {"all": true}`)

// filter returns the events of the change: ids, a filter, or all.
func (b asked) filter(kind string) (f store.Filter, err error) {
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
	switch kind {
	case store.RequestPause, store.RequestResume:
		if given > 0 || b.Outbox != "" {
			return f, errors.New("the whole relay is paused or resumed: want no ids, no filter, no all and no outbox")
		}
		if b.UntilNow && kind == store.RequestPause {
			return f, errors.New("until_now is for a resume")
		}
		return store.Filter{UntilNow: b.UntilNow}, nil
	}
	if b.UntilNow {
		return f, errors.New("until_now is for a resume")
	}
	if given != 1 {
		return f, errOneOf
	}
	if err := f.Check(); err != nil {
		return f, fmt.Errorf("choose what is concerned: %w", err)
	}
	return f, nil
}
