package openapi

import (
	"context"
	"net/http"

	"github.com/cdc-relay/cdc-relay/internal/doctor/install/inbox"
	"github.com/cdc-relay/cdc-relay/internal/web"
	"github.com/cdc-relay/cdc-relay/internal/web/consumers"
)

// desk opens an inbox, whether there is one or not.
func (s *site) desk(url string) *consumers.Desk {
	s.t.Helper()
	d, err := consumers.Open(s.t.Context(), consumers.Config{URL: url, Schema: "inbox"})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(d.Close)
	return d
}

// inbox asks for what consumers hold back, and changes it by each example of the document. It needs no relay that runs.
func (j *judge) inbox(s *site) {
	j.t.Helper()
	without := s.listen(web.Config{Address: "127.0.0.1:0", TokenFile: tokenFile(j.t, secret), Read: web.ReadOpen})
	j.want(http.StatusNotFound, http.MethodGet, without, "/api/v1/inbox", "", nil)
	if _, err := inbox.Create(j.t.Context(), s.pg.Connect(j.t), "inbox", false); err != nil {
		j.t.Fatal(err)
	}
	url := s.listen(web.Config{Address: "127.0.0.1:0", TokenFile: tokenFile(j.t, secret), Read: web.ReadOpen,
		Inbox: s.desk(s.pg.URL)})
	const unknown = "/api/v1/inbox/events?consumer=billing"
	j.want(http.StatusNotFound, http.MethodGet, url, unknown, "", nil)
	j.want(http.StatusNotFound, http.MethodGet, url, "/api/v1/inbox/count?kind=replay&consumer=billing", "", nil)
	for _, kind := range []string{"replay", "discard"} {
		path := "/api/v1/inbox/" + kind
		j.want(http.StatusNotFound, http.MethodPost, url, path, `{"consumer": "billing", "all": true}`, known)
		j.heldBack(s)
		for _, address := range []string{
			"/api/v1/inbox", unknown, unknown + "&state=parked&limit=1", unknown + "&key=k&type=OrderPlaced&older_than=1ms",
			"/api/v1/inbox/events/e1?consumer=billing", "/api/v1/inbox/events/e4?consumer=billing",
			"/api/v1/inbox/count?kind=" + kind + "&consumer=billing&class=exhausted",
		} {
			j.want(http.StatusOK, http.MethodGet, url, address, "", nil)
		}
		hidden := s.listen(web.Config{Address: "127.0.0.1:0", HidePayloads: true, Inbox: s.desk(s.pg.URL)})
		j.want(http.StatusOK, http.MethodGet, hidden, "/api/v1/inbox/events/e1?consumer=billing", "", nil)
		j.want(http.StatusNotFound, http.MethodGet, url, "/api/v1/inbox/events/e77?consumer=billing", "", nil)
		tx, err := s.pg.Connect(j.t).Begin(j.t.Context())
		if err != nil {
			j.t.Fatal(err)
		}
		if _, err := tx.Exec(j.t.Context(), "SELECT FROM inbox.inbox_dead FOR UPDATE"); err != nil {
			j.t.Fatal(err)
		}
		j.want(http.StatusConflict, http.MethodPost, url, path, `{"consumer": "billing", "all": true}`, known)
		if err := tx.Rollback(context.WithoutCancel(j.t.Context())); err != nil {
			j.t.Fatal(err)
		}
		for _, body := range j.examples(j.d.Paths[path]["post"]) {
			j.want(http.StatusOK, http.MethodPost, url, path, body, known)
			j.sent++
		}
		for _, state := range []string{"replayed", "discarded", "parked"} {
			j.want(http.StatusOK, http.MethodGet, url, unknown+"&state="+state, "", nil)
		}
		s.pg.Exec(j.t, "TRUNCATE inbox.inbox_event, inbox.inbox_parked, inbox.inbox_dead, inbox.inbox_consumer")
	}
}

// heldBack gives a consumer two parked events of a key, two without one, and two dead letters.
func (j *judge) heldBack(s *site) {
	j.t.Helper()
	s.pg.Exec(j.t, `SELECT inbox.inbox_park('billing', 'e' || i, 'outbox.event.order', 0, i,
			CASE WHEN i % 3 = 0 THEN NULL ELSE 'k'::bytea END, '{"total": 1}', '{"tenant": "a"}', 'OrderPlaced', 'no'),
		CASE WHEN i > 4 THEN inbox.inbox_failed('billing', 'e' || i, 'no') END FROM generate_series(1, 6) i`)
}
