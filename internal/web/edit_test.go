package web_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/internal/web"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks it catches: an edit without the token, or where payloads are hidden; one that is misread and changes something
// all the same; digits of a number that are lost on the way to a page and back; an edited event that is not published
// as it was edited. Seen to fail without the look at http.show_payloads, with what is left out taken for none, with the
// payload as JSON only, and without the texts of what was there before.
func TestDeadLettersAreEditedOverHTTP(t *testing.T) {
	t.Parallel()
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	s.pg.Exec(t, fmt.Sprintf(insertOrder, "[]"))
	harness.Eventually(t, 30*time.Second, "a dead letter", s.deadLetters(t, "1"))
	id := s.pg.Query(t, "SELECT original_id FROM outbox_events_dlq")
	token := tokenFile(t, planted)
	open := s.door(web.Config{Address: "127.0.0.1:0", TokenFile: token, Read: web.ReadOpen})
	closed := s.door(web.Config{Address: "127.0.0.1:0", TokenFile: token, Read: web.ReadOpen, HidePayloads: true})
	path := "/api/v1/dlq/" + id
	for _, row := range []struct {
		name, path, body string
		at               *door
		token            string
		code             int
	}{
		{"no token", path, `{}`, open, "", 401},
		{"hidden payloads", path, `{"headers": null}`, closed, bearer, 403},
		{"no such letter", "/api/v1/dlq/" + strings.Repeat("0", 8) + id[8:], `{"headers": null}`, open, bearer, 404},
		{"no encoding", path, `{"payload": {}}`, open, bearer, 400},
		{"no payload", path, `{"payload_encoding": "json"}`, open, bearer, 400},
		{"no text", path, `{"payload": 1, "payload_encoding": "text"}`, open, bearer, 400},
		{"no base64", path, `{"payload": "?", "payload_encoding": "base64"}`, open, bearer, 400},
		{"odd encoding", path, `{"payload": 1, "payload_encoding": "xml"}`, open, bearer, 400},
		{"no JSON", path, `{"payload": "{", "payload_encoding": "text", "headers": null}`, open, bearer, 400},
		{"headers of numbers", path, `{"headers": {"a": 1}}`, open, bearer, 400},
		{"unknown field", path, `{"header": {}}`, open, bearer, 400},
		{"another's edit", path, `{"headers": null, "edits_seen": 3}`, open, bearer, 409},
	} {
		code, body, _ := row.at.try("POST", row.path+"/edit", row.body, "Content-Type", jsonType, "Authorization", row.token)
		if code != row.code {
			t.Errorf("%s: got %d %.200s, want %d", row.name, code, body, row.code)
		}
	}
	if got := s.pg.Query(t, `SELECT (SELECT count(*) FROM cdc_relay_edit) || ' ' || (SELECT count(*) FROM
		cdc_relay_request)`); got != "0 0" {
		t.Errorf("edits and requests after refusals only: got %s, want none", got)
	}
	const large = `{"n": 12345678901234567890}`
	for _, body := range []string{
		`{"headers": {"tenant": "x"}, "no_replay": true, "who": "ann", "note": "it was a list"}`,
		`{"payload": "{\"n\": 12345678901234567890}", "payload_encoding": "text", "edits_seen": 1}`,
	} {
		if code, answer, _ := open.try("POST", path+"/edit", body, "Content-Type", jsonType, "Authorization",
			bearer); code != 202 {
			t.Fatalf("edit: got %d %s, want 202", code, answer)
		}
	}
	published := ""
	harness.Eventually(t, time.Minute, "the event arrives", func(context.Context) string {
		harness.Consume(t, s.broker.Addresses(), []string{"outbox.event.order"}, func(r *kgo.Record) {
			published = string(r.Value) + " " + string(harness.Header(r, "tenant")) + string(harness.Header(r, "id"))
		})
		if published == "" {
			return "nothing in the topic"
		}
		return ""
	})
	if want := large + " x" + id; published != want {
		t.Errorf("published: got %s, want %s", published, want)
	}
	if code, body, _ := open.try("GET", path+"?payload=text", ""); code != 200 ||
		!strings.Contains(body, `"payload_text": "{\"n\": 12345678901234567890}"`) ||
		!strings.Contains(body, `"headers_text": "{\"tenant\": \"x\"}"`) ||
		!strings.Contains(body, `"former_payload_text": "{}"`) || !strings.Contains(body, `"former_headers_text": "[]"`) ||
		!strings.Contains(body, `"former_headers": []`) || !strings.Contains(body, `"edited_by": "ann via api@127.0.0.1"`) {
		t.Errorf("the dead letter: got %d %s, want both edits", code, body)
	}
	if said := open.log.String(); strings.Count(said, `"audit":"edit"`) != 2 || strings.Contains(said, "1234567890") {
		t.Errorf("log: got %s, want two edits without what they hold", said)
	}
}

// Breaks it catches: an edit of many without the token, or that chooses nothing, or changes nothing; one that is not
// continued where it was left, or whose answer does not say what it left out.
func TestManyDeadLettersAreEditedOverHTTP(t *testing.T) {
	t.Parallel()
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	for range 3 {
		s.pg.Exec(t, fmt.Sprintf(insertOrder, "[]"))
	}
	harness.Eventually(t, 30*time.Second, "dead letters", s.deadLetters(t, "3"))
	open := s.door(web.Config{Address: "127.0.0.1:0", TokenFile: tokenFile(t, planted), Read: web.ReadOpen})
	s.pg.Exec(t, `UPDATE outbox_events_dlq SET headers = '{"n": 1}';
		UPDATE outbox_events_dlq SET payload = '7' WHERE id = (SELECT max(id) FROM outbox_events_dlq)`)
	const path = "/api/v1/dlq/edit"
	for body, token := range map[string]string{
		`{"all": true, "tombstone": true}`:                       "",
		`{"tombstone": true}`:                                    bearer,
		`{"all": true}`:                                          bearer,
		`{"all": true, "merge_headers": {"a": 1}}`:               bearer,
		`{"all": true, "tombstone": true, "after": "elsewhere"}`: bearer,
		`{"all": true, "tombstone": true, "until_now": true}`:    bearer,
	} {
		code, answer, _ := open.try("POST", path, body, "Content-Type", jsonType, "Authorization", token)
		if want := map[bool]int{true: 400, false: 401}[token != ""]; code != want {
			t.Errorf("%s: got %d %.200s, want %d", body, code, answer, want)
		}
	}
	code, answer, _ := open.try("POST", path, `{"all": true, "merge_headers": {"n": "1"}, "merge_payload": {"m": 1},
		"who": "ann"}`, "Content-Type", jsonType, "Authorization", bearer)
	if code != 202 || !strings.Contains(answer, `"edited": 2`) || !strings.Contains(answer, "not a JSON object") ||
		!strings.Contains(answer, `"next": null`) {
		t.Fatalf("got %d %s, want two edited, one refused, and nothing left", code, answer)
	}
	harness.Eventually(t, time.Minute, "the events arrive", func(context.Context) string {
		n := 0
		harness.Consume(t, s.broker.Addresses(), []string{"outbox.event.order"}, func(r *kgo.Record) {
			if strings.Contains(string(r.Value), `"m": 1`) && string(harness.Header(r, "n")) == "1" {
				n++
			}
		})
		if n != 2 {
			return fmt.Sprint(n, " events in the topic")
		}
		return ""
	})
}

// deadLetters is met when there are so many.
func (s *site) deadLetters(t *testing.T, n string) func(context.Context) string {
	t.Helper()
	return func(context.Context) string {
		if got := s.pg.Query(t, "SELECT count(*) FROM outbox_events_dlq"); got != n {
			return got + " dead letters"
		}
		return ""
	}
}
