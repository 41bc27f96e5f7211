package web

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// edited is the body of a change of what a dead letter sends. What is left out stays as it is.
type edited struct {
	Payload  json.RawMessage `json:"payload"`
	Encoding string          `json:"payload_encoding"` // json, text, base64 or null, as a dead letter is shown
	Headers  json.RawMessage `json:"headers"`          // an object of strings; null: none
	Seen     *int            `json:"edits_seen"`       // how many edits the caller has seen
	Outbox   string          `json:"outbox"`           // that has the event, if the slot has several
	NoReplay bool            `json:"no_replay"`
	Note     string          `json:"note"`
	Who      string          `json:"who"`
}

// edit changes a dead letter, and asks for its replay.
func (c changes) edit(w http.ResponseWriter, req *http.Request) {
	var body edited
	s, by, ok := c.mayEdit(w, req, &body)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(req.Context(), lookupTimeout)
	defer cancel()
	id, who := req.PathValue("id"), by.who(body.Who, req.RemoteAddr)
	var d *store.DeadLetterWhole
	s, err := s.Named(ctx, body.Outbox)
	if err == nil {
		d, err = s.DeadLetter(ctx, id)
	}
	if err != nil {
		fail(w, codeOf(err), err)
		return
	}
	e := store.Edit{ID: id, Payload: d.Payload, Headers: d.Headers, Seen: len(d.Edits), Who: who, Note: body.Note,
		Replay: !body.NoReplay}
	if err := body.into(&e); err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	request, err := s.EditDead(ctx, e)
	if err != nil {
		fail(w, codeOf(err), err)
		return
	}
	c.guard.c.Logger.Info().Str("audit", "edit").Int64("request", request).Str("event_id", id).Str("who", who).Str("from",
		req.RemoteAddr).Msg("dead letter edited over HTTP")
	answer(w, http.StatusAccepted, map[string]int64{"request": request})
}

// into changes what is given.
func (b edited) into(e *store.Edit) (err error) {
	var text string
	switch b.Encoding {
	case "":
		if b.Payload != nil {
			err = errors.New("payload: want payload_encoding with it: json, text, base64 or null")
		}
	case "null":
		e.Payload = nil
	case "json":
		if e.Payload = b.Payload; b.Payload == nil {
			err = errors.New("payload: missing; a tombstone has payload_encoding null")
		}
	case "text", "base64":
		if err = json.Unmarshal(b.Payload, &text); err != nil {
			return fmt.Errorf("payload: want a JSON string for payload_encoding %s", b.Encoding)
		}
		if e.Payload = []byte(text); b.Encoding == "base64" {
			if e.Payload, err = base64.StdEncoding.DecodeString(text); err != nil {
				return fmt.Errorf("payload: read base64: %w", err)
			}
		}
	default:
		err = fmt.Errorf("payload_encoding: found %.20q; allowed: json, text, base64, null", b.Encoding)
	}
	switch {
	case b.Headers == nil:
	case string(b.Headers) == "null":
		e.Headers = nil
	default:
		e.Headers = b.Headers
	}
	if b.Seen != nil {
		e.Seen = *b.Seen
	}
	return err
}
