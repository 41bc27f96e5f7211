package web

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

const (
	editPortion = 100             // dead letters that one transaction changes
	editTime    = 3 * time.Second // after which an edit of many answers with how far it is
)

// editsAll is the body of a change of what all dead letters send that are chosen.
type editsAll struct {
	asked
	Payload   json.RawMessage  `json:"merge_payload"` // JSON merge patches, RFC 7396
	Headers   json.RawMessage  `json:"merge_headers"`
	Tombstone bool             `json:"tombstone"`
	NoReplay  bool             `json:"no_replay"`
	After     store.DeadCursor `json:"after"`
}

// editedAll is how far the change is.
type editedAll struct {
	Edited    int                `json:"edited"`
	Unchanged int                `json:"unchanged"`
	Refused   []store.NotPatched `json:"refused"`
	Requests  []int64            `json:"requests"` // of the replays
	Next      *store.DeadCursor  `json:"next"`     // null: it is done
}

// editAll changes dead letters in portions, each with the request for its replay in one transaction, for some seconds.
// The client asks again for the rest.
func (c changes) editAll(w http.ResponseWriter, req *http.Request) {
	var body editsAll
	s, by, ok := c.mayEdit(w, req, &body)
	if !ok {
		return
	}
	filter, err := body.filter(store.RequestReplay)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	e := store.EditAll{Filter: filter, Who: by.who(body.Who, req.RemoteAddr), Note: body.Note, Replay: !body.NoReplay,
		Patch: store.Patch{Payload: body.Payload, Headers: body.Headers, Tombstone: body.Tombstone}}
	ctx, cancel := context.WithTimeout(req.Context(), lookupTimeout)
	defer cancel()
	if s, err = s.Named(ctx, body.Outbox); err != nil {
		fail(w, codeOf(err), err)
		return
	}
	done := editedAll{Refused: []store.NotPatched{}, Requests: []int64{}, Next: &body.After}
	for begun := time.Now(); done.Next != nil && time.Since(begun) < editTime; {
		step, err := s.EditAll(ctx, e, *done.Next, editPortion)
		if err != nil && done.Edited == 0 {
			fail(w, codeOf(err), err)
			return
		}
		if err != nil {
			break // what is edited is told; the client sees the error when it asks for the rest
		}
		done.take(step)
	}
	c.guard.c.Logger.Info().Str("audit", "edit").Ints64("requests", done.Requests).Int("edited", done.Edited).Str("who",
		e.Who).Str("from", req.RemoteAddr).Str("chosen_by", filter.Criteria()).Msg("dead letters edited over HTTP")
	answer(w, http.StatusAccepted, done)
}

func (d *editedAll) take(step store.EditStep) {
	d.Edited += step.Edited
	d.Unchanged += step.Seen - step.Edited - len(step.Refused)
	d.Refused = append(d.Refused, step.Refused...)
	if step.Request > 0 {
		d.Requests = append(d.Requests, step.Request)
	}
	if d.Next = &step.Next; step.Seen == 0 {
		d.Next = nil
	}
}
