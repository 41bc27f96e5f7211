package openapi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	validator "github.com/pb33f/libopenapi-validator"

	"github.com/cdc-relay/cdc-relay/internal/web"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// judge compares what is asked and answered with the document, and remembers what it has seen.
type judge struct {
	t    *testing.T
	d    document
	v    validator.Validator
	seen map[string]bool // "GET /livez 200"
	sent int             // examples of changes
}

// path is that of the document which the address is one of.
func (j *judge) path(address string) string {
	path, _, _ := strings.Cut(address, "?")
	best := ""
	for template := range j.d.Paths {
		if fits(template, path) && (best == "" || !strings.Contains(template, "{")) {
			best = template
		}
	}
	return best
}

// want asks, and compares the answer with the code and the document; what is answered well was asked by the document,
// too.
func (j *judge) want(code int, method, url, address, body string, headers map[string]string) string {
	j.t.Helper()
	request, response, text := ask(j.t, method, url+address, body, headers)
	what := method + " " + address
	if response.StatusCode != code {
		j.t.Errorf("%s %.100s: got %d %.200s, want %d", what, body, response.StatusCode, text, code)
	}
	path := j.path(address)
	seen := fmt.Sprintf("%s %s %d", method, path, response.StatusCode)
	if j.d.Paths[path][strings.ToLower(method)].Responses[strconv.Itoa(response.StatusCode)] == nil {
		j.t.Errorf("%s: the document has no answer %d", what, response.StatusCode)
	}
	j.seen[seen] = true
	if response.Body == http.NoBody {
		return "" // a stream
	}
	if _, problems := j.v.ValidateHttpResponse(request, response); len(problems) > 0 {
		for _, p := range problems {
			j.t.Errorf("%s: the answer %d is not as the document says: %s: %s", what, response.StatusCode, p.Message, p.Reason)
			for _, one := range p.SchemaValidationErrors {
				j.t.Errorf("  %s at %s", one.Reason, one.FieldPath)
			}
		}
		j.t.Logf("the answer: %.2000s", text)
	}
	if code < http.StatusBadRequest {
		if _, problems := j.v.ValidateHttpRequest(request); len(problems) > 0 {
			j.t.Errorf("%s %s is taken, and the document says: %s: %s", what, body, problems[0].Message, problems[0].Reason)
		}
	}
	return text
}

var (
	typed = map[string]string{"Content-Type": "application/json"}
	known = map[string]string{"Content-Type": "application/json", "Authorization": "Bearer " + secret}
)

// examples are those of an operation's body, as JSON.
func (j *judge) examples(o operation) (texts []string) {
	b := o.Body
	if b == nil {
		return nil
	}
	if name, is := strings.CutPrefix(b.Ref, "#/components/requestBodies/"); is {
		found := j.d.Components.RequestBodies[name]
		b = &found
	}
	examples := b.Content["application/json"].Examples
	for _, name := range slices.Sorted(maps.Keys(examples)) {
		text, err := json.Marshal(examples[name].Value)
		if err != nil {
			j.t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	return texts
}

// unseen are answers that no test of this size can have: an end of this process, and a settler that hangs for 30 s.
var unseen = []string{"GET /livez 503"}

// Breaks it catches: an answer that is not as the document says, a field that it does not have, an example that is
// refused, an answer of the document that no one gives. Seen to fail with backlog as a text, with a field of the status
// taken out of the document, with an example that has neither ids nor all, and with an answer 418 in the document.
func TestAnswersAreAsTheDocumentSays(t *testing.T) {
	t.Parallel()
	d, v := read(t)
	j := &judge{t: t, d: d, v: v, seen: map[string]bool{}}
	starting, _ := newSite(t)
	j.whileStarting(starting)
	j.inbox(starting)
	s, run := newSite(t)
	run()
	url := s.listen(web.Config{Address: "127.0.0.1:0", TokenFile: tokenFile(t, secret), Read: web.ReadOpen})
	wait(t, url+"/readyz", http.StatusOK)
	// One is dead, one parked, one published; what the broker lost is made up.
	s.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, headers) VALUES
		('order', 'a', 'made', '{"n": 1}', '[]'), ('invoice', 'b', 'sent', '{}', NULL), ('order', 'c', 'made', '{}', '{}')`)
	s.pg.Exec(t, `INSERT INTO cdc_relay_alarms (source, kind, topic, partition, detail, repair, first_seen, last_seen,
		count) SELECT source, 'lost_data', 'orders', 1, 'records are gone', 'cdc-relay verify --repair', now(), now(), 1
		FROM cdc_relay_source`)
	for what, sql := range map[string]string{
		"a dead letter":     "SELECT count(*) FROM outbox_events_dlq",
		"a parked event":    "SELECT count(*) FROM cdc_relay_parked",
		"a published event": "SELECT count(*) FROM cdc_relay_journal",
	} {
		harness.Eventually(t, 30*time.Second, what, func(context.Context) string {
			if n := s.pg.Query(t, sql); n == "0" {
				return n
			}
			return ""
		})
	}
	harness.Eventually(t, 30*time.Second, "a point of the history", func(context.Context) string {
		if _, _, body := ask(t, http.MethodGet, url+"/api/v1/history", "", nil); !strings.Contains(body, `"relay_p50"`) {
			return body
		}
		return ""
	})
	dead := s.pg.Query(t, "SELECT original_id FROM outbox_events_dlq")
	j.reads(url, dead)
	j.refusals(s, url, dead)
	j.changes(url, dead)
	for path, operations := range d.Paths {
		for method, o := range operations {
			for code := range o.Responses {
				answer := strings.ToUpper(method) + " " + path + " " + code
				if !j.seen[answer] && !slices.Contains(unseen, answer) {
					t.Errorf("%s stands in the document, and was not seen", answer)
				}
			}
		}
	}
}

// whileStarting asks a relay that has no tables yet.
func (j *judge) whileStarting(s *site) {
	j.t.Helper()
	url := s.listen(web.Config{Address: "127.0.0.1:0", TokenFile: tokenFile(j.t, secret), Read: web.ReadOpen,
		Inbox: s.desk("host=127.0.0.1 port=1")})
	for path, operations := range j.d.Paths {
		o, isChange := operations["post"]
		address := strings.ReplaceAll(path, "{id}", "1")
		switch {
		case path == "/api/v1/session": // it asks the relay for nothing
		case isChange:
			j.want(http.StatusServiceUnavailable, http.MethodPost, url, address, j.examples(o)[0], known)
		case slices.Contains([]string{"/readyz", "/healthz", "/health"}, path):
			j.want(http.StatusServiceUnavailable, http.MethodGet, url, address, "", nil)
		case slices.Contains([]string{"/api/v1/parked", "/api/v1/dlq", "/api/v1/dlq/reasons", "/api/v1/dlq/{id}",
			"/api/v1/requests/{id}", "/api/v1/alarms", "/api/v1/inbox"}, path):
			j.want(http.StatusServiceUnavailable, http.MethodGet, url, address, "", nil)
		}
	}
	j.want(http.StatusServiceUnavailable, http.MethodGet, url, "/api/v1/find?id=x", "", nil)
	j.want(http.StatusServiceUnavailable, http.MethodGet, url, "/api/v1/count?kind=retry", "", nil)
	for _, path := range []string{"events?", "events/x?", "count?kind=replay&"} {
		j.want(http.StatusServiceUnavailable, http.MethodGet, url, "/api/v1/inbox/"+path+"consumer=billing", "", nil)
	}
	// No one is let in without a token to compare with; the status and its like ask for nothing else.
	away := s.listen(web.Config{Address: "0.0.0.0:0", TokenFile: tokenFile(j.t, "")})
	for _, path := range []string{"status", "history", "notes", "config", "stream", "session"} {
		j.want(http.StatusServiceUnavailable, http.MethodGet, away, "/api/v1/"+path, "", known)
	}
	j.want(http.StatusServiceUnavailable, http.MethodPost, away, "/api/v1/session", loginOf(secret), typed)
}

// reads asks for all that can be read.
func (j *judge) reads(url, dead string) {
	j.t.Helper()
	for _, address := range []string{
		"/livez", "/readyz", "/healthz", "/health?degraded=no", "/metrics", "/docs/openapi.yaml",
		"/api/v1/status", "/api/v1/history", "/api/v1/notes", "/api/v1/config", "/api/v1/stream",
		"/api/v1/parked", "/api/v1/parked?limit=1&topic=outbox.event.invoice&older_than=1ms",
		"/api/v1/dlq", "/api/v1/dlq?state=all&class=permanent&type=made&key=a&newer_than=7d&limit=1",
		"/api/v1/dlq/reasons", "/api/v1/dlq/reasons?state=all&code=X",
		"/api/v1/dlq?id=" + dead + "&aggregate=order/a", "/api/v1/dlq/" + dead, "/api/v1/dlq/" + dead + "?payload=text",
		"/api/v1/find?aggregate=order/c&since=24h", "/api/v1/find?aggregate=invoice/b", "/api/v1/find?id=" + dead +
			"&id=019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01",
		"/api/v1/alarms", "/api/v1/alarms?state=all", "/api/v1/session", "/api/v1/find?key=c&limit=2",
		"/api/v1/count?kind=replay&class=permanent&key=a", "/api/v1/count?kind=retry",
	} {
		code := http.StatusOK
		if address == "/health?degraded=no" { // an event is parked
			code = http.StatusServiceUnavailable
		}
		j.want(code, http.MethodGet, url, address, "", nil)
	}
	j.want(http.StatusOK, http.MethodGet, url, "/health", "", nil)
}

// refusals asks what is refused.
func (j *judge) refusals(s *site, url, dead string) {
	j.t.Helper()
	away := s.listen(web.Config{Address: "0.0.0.0:0", TokenFile: tokenFile(j.t, secret)})
	shut := s.listen(web.Config{Address: "0.0.0.0:0"})
	large := `{"note": "` + strings.Repeat("x", 1<<20) + `"}`
	for path, operations := range j.d.Paths {
		address := strings.ReplaceAll(path, "{id}", dead)
		if _, isRead := operations["get"]; isRead {
			j.want(http.StatusBadRequest, http.MethodGet, url, address+"?%zz", "", nil)
			if strings.HasPrefix(path, "/api/") {
				j.want(http.StatusUnauthorized, http.MethodGet, away, address, "", nil)
				j.want(http.StatusForbidden, http.MethodGet, shut, address, "", nil)
			}
			continue
		}
		j.want(http.StatusBadRequest, http.MethodPost, url, address, `{"unknown": 1}`, known)
		j.want(http.StatusUnauthorized, http.MethodPost, url, address, `{}`, typed)
		j.want(http.StatusForbidden, http.MethodPost, shut, address, `{}`, known)
		j.want(http.StatusRequestEntityTooLarge, http.MethodPost, url, address, large, known)
		j.want(http.StatusUnsupportedMediaType, http.MethodPost, url, address, `{}`,
			map[string]string{"Content-Type": "text/plain", "Authorization": known["Authorization"]})
	}
	j.sessions(url, shut, large)
	const unknown = "019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01"
	j.want(http.StatusNotFound, http.MethodGet, url, "/api/v1/dlq/"+unknown, "", nil)
	j.want(http.StatusNotFound, http.MethodGet, url, "/api/v1/requests/77", "", nil)
	j.want(http.StatusNotFound, http.MethodPost, url, "/api/v1/dlq/"+unknown+"/edit", `{"headers": null}`, known)
	j.want(http.StatusConflict, http.MethodPost, url, "/api/v1/dlq/"+dead+"/edit", `{"headers": null, "edits_seen": 3}`,
		known)
	j.want(http.StatusNotFound, http.MethodPost, url, "/api/v1/alarms/ack", `{"ids": [77]}`, known)
	hidden := s.listen(web.Config{Address: "127.0.0.1:0", TokenFile: tokenFile(j.t, secret), Read: web.ReadOpen,
		HidePayloads: true})
	j.want(http.StatusOK, http.MethodGet, hidden, "/api/v1/dlq/"+dead, "", nil)
	j.want(http.StatusForbidden, http.MethodPost, hidden, "/api/v1/dlq/"+dead+"/edit", `{"headers": null}`, known)
	j.want(http.StatusForbidden, http.MethodPost, hidden, "/api/v1/dlq/edit", `{"all": true, "tombstone": true}`, known)
}

func loginOf(token string) string { return fmt.Sprintf(`{"token": %q, "name": "ann"}`, token) }

// sessions logs in and out; the last of too many logins fails.
func (j *judge) sessions(url, shut, large string) {
	j.t.Helper()
	const path = "/api/v1/session"
	j.want(http.StatusOK, http.MethodPost, url, path, loginOf(secret), typed)
	j.want(http.StatusBadRequest, http.MethodPost, url, path, `{"unknown": 1}`, typed)
	j.want(http.StatusForbidden, http.MethodPost, shut, path, loginOf(secret), typed)
	j.want(http.StatusRequestEntityTooLarge, http.MethodPost, url, path, large, typed)
	j.want(http.StatusUnsupportedMediaType, http.MethodPost, url, path, loginOf(secret), nil)
	j.want(http.StatusOK, http.MethodDelete, url, path, "", nil)
	j.want(http.StatusBadRequest, http.MethodDelete, url, path+"?%zz", "", nil)
	j.want(http.StatusForbidden, http.MethodDelete, shut, path, "", nil)
	for range 10 {
		j.want(http.StatusUnauthorized, http.MethodPost, url, path, loginOf("wrong"), typed)
	}
	j.want(http.StatusTooManyRequests, http.MethodPost, url, path, loginOf("wrong"), typed)
}

// changes sends each example of the document, and looks at what became of it. What ends a dead letter comes last.
func (j *judge) changes(url, dead string) {
	j.t.Helper()
	order := []string{"/api/v1/dlq/{id}/edit", "/api/v1/dlq/edit", "/api/v1/alarms/ack", "/api/v1/retry",
		"/api/v1/pause", "/api/v1/resume", "/api/v1/dlq/replay", "/api/v1/dlq/discard"}
	sent := j.sent
	for _, path := range order {
		for _, body := range j.examples(j.d.Paths[path]["post"]) {
			code := http.StatusAccepted
			if path == "/api/v1/alarms/ack" {
				code = http.StatusOK
			}
			text := j.want(code, http.MethodPost, url, strings.ReplaceAll(path, "{id}", dead), body, known)
			sent++
			var answer struct{ Request int64 }
			if err := json.Unmarshal([]byte(text), &answer); err != nil {
				j.t.Errorf("%s %s: %v", path, body, err)
			}
			if answer.Request > 0 {
				j.want(http.StatusOK, http.MethodGet, url, fmt.Sprint("/api/v1/requests/", answer.Request), "", nil)
			}
			j.want(http.StatusOK, http.MethodGet, url, "/api/v1/dlq/"+dead, "", nil)
			j.want(http.StatusOK, http.MethodGet, url, "/api/v1/status", "", nil)
		}
	}
	bodies := 0
	for _, operations := range j.d.Paths {
		bodies += len(j.examples(operations["post"]))
	}
	if sent != bodies {
		j.t.Errorf("examples: sent %d of %d", sent, bodies)
	}
}
