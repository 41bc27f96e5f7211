package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// alarms lists what topics lost or moved: what no one has acknowledged, or all.
func (l lists) alarms(w http.ResponseWriter, req *http.Request) {
	q := query{values: req.URL.Query()}
	state := q.take("state")
	if state != "" && state != "open" && state != "all" {
		q.errs = append(q.errs, fmt.Errorf("state: found %q; allowed: open, all", state))
	}
	l.list(w, req, "", q.end(), func(ctx context.Context, s *store.Store) (any, error) {
		list, err := s.Alarms(ctx, state == "all")
		return map[string]any{"items": list}, err
	})
}

// seen is the body of an acknowledgement.
type seen struct {
	IDs  []int64 `json:"ids"`
	All  bool    `json:"all"`
	Note string  `json:"note"`
	Who  string  `json:"who"` // who says to have looked, as in a change of events
}

// acknowledge notes that a person has looked at alarms. It is done when it answers.
func (c changes) acknowledge(w http.ResponseWriter, req *http.Request) {
	var body seen
	s, by, ok := c.permitted(w, req, &body)
	if !ok {
		return
	}
	if body.All == (len(body.IDs) > 0) {
		fail(w, http.StatusBadRequest, errors.New(`want one of {"ids": […]} and {"all": true}`))
		return
	}
	ctx, cancel := context.WithTimeout(req.Context(), lookupTimeout)
	defer cancel()
	who := by.who(body.Who, req.RemoteAddr)
	acked, err := s.AckAlarms(ctx, body.IDs, body.All, who, body.Note)
	if err != nil {
		fail(w, codeOf(err), err)
		return
	}
	c.guard.c.Logger.Info().Str("audit", "alarms").Ints64("alarms", acked).Str("who", who).Str("from", req.RemoteAddr).
		Msg("alarms acknowledged over HTTP")
	answer(w, http.StatusOK, map[string][]int64{"acknowledged": acked})
}
