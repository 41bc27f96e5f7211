package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/internal/web"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// planted must be in no log and no answer.
const planted = "planted-token-4711"

// door is one more listener on a site's relay.
type door struct {
	t    *testing.T
	url  string
	port string
	log  harness.Log
}

func (s *site) door(c web.Config) *door {
	s.t.Helper()
	d := &door{t: s.t}
	c.Logger = zerolog.New(&d.log)
	server, err := web.Listen(c, s.relay)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := server.Close(); err != nil {
			s.t.Errorf("close the listener: %v", err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	_, d.port, _ = net.SplitHostPort(server.Address())
	d.url = "http://127.0.0.1:" + d.port
	return d
}

// try sends a request; headers are pairs of name and value, "Host" included.
func (d *door) try(method, path, body string, headers ...string) (int, string, http.Header) {
	d.t.Helper()
	request, err := http.NewRequestWithContext(d.t.Context(), method, d.url+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			request.Host = headers[i+1]
		} else {
			request.Header.Set(headers[i], headers[i+1])
		}
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		d.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		d.t.Fatalf("%s %s: %v", method, path, err)
	}
	return response.StatusCode, string(answer), response.Header
}

func tokenFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const (
	jsonType = "application/json"
	bearer   = "Bearer " + planted
)

// Each row is one rule. Breaks it catches: any of them left out; a refusal that changes something all the same. Seen to
// fail without the token, the origin, the name, the type and the size looked at.
func TestChangesNeedTheTokenAndComeFromNoOtherOrigin(t *testing.T) {
	t.Parallel()
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	d := s.door(web.Config{Address: "127.0.0.1:0", TokenFile: tokenFile(t, planted+"\n"), Read: web.ReadOpen})
	pause := "/api/v1/pause"
	for _, row := range []struct {
		name, method, path, body string
		headers                  []string
		want                     int
		say                      string
	}{
		{"no token", "POST", pause, "{}", []string{"Content-Type", jsonType}, 401, "Bearer"},
		{"wrong token", "POST", pause, "{}", []string{"Content-Type", jsonType, "Authorization", "Bearer planted-token-4712"},
			401, "wrong"},
		{"part of the token", "POST", pause, "{}", []string{"Content-Type", jsonType, "Authorization", "Bearer planted"}, 401,
			"wrong"},
		{"empty token", "POST", pause, "{}", []string{"Content-Type", jsonType, "Authorization", "Bearer "}, 401, "wrong"},
		{"basic", "POST", pause, "{}", []string{"Content-Type", jsonType, "Authorization", "Basic " + planted}, 401, "wrong"},
		{"token in the address", "POST", pause + "?token=" + planted, "{}", []string{"Content-Type", jsonType}, 401,
			"Bearer"},
		{"a form", "POST", pause, "{}", []string{"Content-Type", "application/x-www-form-urlencoded", "Authorization",
			bearer}, 415, "Content-Type"},
		{"text", "POST", pause, "{}", []string{"Content-Type", "text/plain", "Authorization", bearer}, 415, "Content-Type"},
		{"no type", "POST", pause, "{}", []string{"Authorization", bearer}, 415, "Content-Type"},
		{"reading method", "GET", pause, "", []string{"Authorization", bearer}, 405, ""},
		{"another method", "PUT", pause, "{}", []string{"Content-Type", jsonType, "Authorization", bearer}, 405, ""},
		{"preflight", "OPTIONS", pause, "",
			[]string{"Origin", "http://evil.example", "Access-Control-Request-Method", "POST"}, 403, "origin"},
		{"too large", "POST", "/api/v1/dlq/replay", `{"ids": ["` + strings.Repeat("x", 1<<20) + `"]}`,
			[]string{"Content-Type", jsonType, "Authorization", bearer}, 413, "1048576"},
		{"other origin", "POST", pause, "{}",
			[]string{"Content-Type", jsonType, "Authorization", bearer, "Origin", "http://evil.example"}, 403, "origin"},
		{"no origin", "POST", pause, "{}", []string{"Content-Type", jsonType, "Authorization", bearer, "Origin", "null"}, 403,
			"origin"},
		{"other port", "POST", pause, "{}",
			[]string{"Content-Type", jsonType, "Authorization", bearer, "Origin", "http://127.0.0.1:1"}, 403, "origin"},
		{"cross site", "POST", pause, "{}",
			[]string{"Content-Type", jsonType, "Authorization", bearer, "Sec-Fetch-Site", "cross-site"}, 403, "origin"},
		{"cross site read", "GET", "/api/v1/status", "", []string{"Sec-Fetch-Site", "cross-site"}, 403, "origin"},
		{"rebound name", "GET", "/api/v1/dlq", "", []string{"Host", "evil.example"}, 403, "evil.example"},
		{"rebound name, console", "GET", "/", "", []string{"Host", "evil.example:" + d.port}, 403, "evil.example"},
		{"rebound name, change", "POST", pause, "{}",
			[]string{"Content-Type", jsonType, "Authorization", bearer, "Host", "evil.example", "Origin", "http://evil.example"},
			403, "evil.example"},
		{"by name", "GET", "/api/v1/status", "", []string{"Host", "localhost:" + d.port}, 200, ""},
		{"metrics by any name", "GET", "/metrics", "", []string{"Host", "relay.internal"}, 200, ""},
		{"nothing chosen", "POST", "/api/v1/dlq/replay", "{}", []string{"Content-Type", jsonType, "Authorization", bearer},
			400, "all"},
		{"empty filter", "POST", "/api/v1/dlq/replay", `{"filter": {}}`,
			[]string{"Content-Type", jsonType, "Authorization", bearer}, 400, "nothing is chosen"},
		{"no ids", "POST", "/api/v1/dlq/discard", `{"ids": []}`, []string{"Content-Type", jsonType, "Authorization", bearer},
			400, "nothing is chosen"},
		{"two choices", "POST", "/api/v1/retry", `{"all": true, "ids": ["x"]}`,
			[]string{"Content-Type", jsonType, "Authorization", bearer}, 400, "one of"},
		{"misspelt", "POST", "/api/v1/dlq/replay", `{"filter": {"topik": "x"}}`,
			[]string{"Content-Type", jsonType, "Authorization", bearer}, 400, "topik"},
		{"bad class", "POST", "/api/v1/retry", `{"filter": {"class": "zzz"}}`,
			[]string{"Content-Type", jsonType, "Authorization", bearer}, 400, "transient, permanent, blocked"},
		{"bad age", "POST", "/api/v1/retry", `{"filter": {"older_than": "old"}}`,
			[]string{"Content-Type", jsonType, "Authorization", bearer}, 400, "24h"},
		{"bad id", "POST", "/api/v1/dlq/replay", `{"ids": ["x"]}`,
			[]string{"Content-Type", jsonType, "Authorization", bearer}, 400, "uuid"},
		{"two objects", "POST", pause, "{}{}", []string{"Content-Type", jsonType, "Authorization", bearer}, 400, ""},
		{"no JSON", "POST", pause, "pause", []string{"Content-Type", jsonType, "Authorization", bearer}, 400, "body"},
		{"a part of the relay", "POST", pause, `{"all": true}`, []string{"Content-Type", jsonType, "Authorization", bearer},
			400, "whole relay"},
		{"unknown change", "POST", "/api/v1/drop", "{}", []string{"Content-Type", jsonType, "Authorization", bearer}, 404,
			""},
	} {
		got, body, header := d.try(row.method, row.path, row.body, row.headers...)
		if got != row.want || !strings.Contains(body, row.say) {
			t.Errorf("%s: got %d %.200s, want %d with %q", row.name, got, body, row.want, row.say)
		}
		if got == 401 && !strings.HasPrefix(header.Get("WWW-Authenticate"), "Bearer") {
			t.Errorf("%s: got WWW-Authenticate %q", row.name, header.Get("WWW-Authenticate"))
		}
		if header.Get("X-Frame-Options") != "DENY" || header.Get("X-Content-Type-Options") != "nosniff" ||
			header.Get("Access-Control-Allow-Origin") != "" ||
			!strings.HasPrefix(header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: got headers %v", row.name, header)
		}
		if strings.Contains(body, planted) {
			t.Errorf("%s: the answer holds the token: %s", row.name, body)
		}
	}
	if n := s.pg.Query(t, "SELECT count(*) FROM cdc_relay_request"); n != "0" {
		t.Errorf("requests after refusals only: got %s, want none", n)
	}
	code, body, _ := d.try("POST", pause, `{"note": "deploy", "who": "ann"}`, "Content-Type", jsonType+"; charset=utf-8",
		"Authorization", bearer, "Origin", d.url, "Sec-Fetch-Site", "same-origin")
	var answered struct{ Request int64 }
	if err := json.Unmarshal([]byte(body), &answered); err != nil || code != 202 || answered.Request == 0 {
		t.Fatalf("pause: got %d %s, want 202 with a number", code, body)
	}
	s.wantReady(http.StatusServiceUnavailable, "paused by ann via api@127.0.0.1")
	if code, body, _ = d.try("GET", fmt.Sprint("/api/v1/requests/", answered.Request), ""); code != 200 ||
		!strings.Contains(body, `"note": "deploy"`) || !strings.Contains(body, `"kind": "pause"`) {
		t.Errorf("the request: got %d %s", code, body)
	}
	if code, body, _ = d.try("POST", "/api/v1/resume", `{}`, "Content-Type", jsonType, "Authorization",
		bearer); code != 202 {
		t.Errorf("resume: got %d %s", code, body)
	}
	s.wantReady(http.StatusOK, "")
	said := d.log.String()
	for _, want := range []string{`"audit":"pause"`, `"who":"ann via api@127.0.0.1"`, `"from":"127.0.0.1:`,
		"HTTP request refused"} {
		if !strings.Contains(said, want) {
			t.Errorf("the log has no %s:\n%s", want, said)
		}
	}
	if strings.Contains(said, planted) {
		t.Errorf("the log holds the token:\n%s", said)
	}
}

// Breaks it catches: an address that others reach and that shows, or changes, more than it may; a token that is read
// once. Seen to fail with such an address not looked at, and with JSON for a browser.
func TestOtherAddressesServeMetricsAndHealthOnlyWithoutAToken(t *testing.T) {
	t.Parallel()
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	shut := s.door(web.Config{Address: "0.0.0.0:0"})
	for path, want := range map[string]int{
		"/metrics": 200, "/livez": 200, "/readyz": 200, "/healthz": 200, "/health": 200, "/docs": 200, "/docs/alerts": 200,
		"/docs/nothing": 404,
		"/":             403, "/docs/../api/v1/dlq": 403, "/console/console.js": 403, "/api/v1/status": 403,
		"/api/v1/dlq": 403, "/api/v1/stream": 403, "/api/v1/config": 403, "/nothing": 403, "//metrics/../api/v1/dlq": 403,
	} {
		if got, body, _ := shut.try("GET", path, ""); got != want ||
			want == 403 && !strings.Contains(body, "http.token_file") {
			t.Errorf("without a token, %s: got %d %.100s, want %d and what to do", path, got, body, want)
		}
	}
	if got, body, _ := shut.try("POST", "/api/v1/pause", "{}", "Content-Type", jsonType, "Authorization",
		bearer); got != 403 || !strings.Contains(body, "http.token_file") {
		t.Errorf("a change without a token: got %d %s", got, body)
	}
	code, page, header := shut.try("GET", "/", "", "Accept", "text/html,application/xhtml+xml")
	if code != 403 || !strings.HasPrefix(header.Get("Content-Type"), "text/html") || !strings.Contains(page, "<h1>") ||
		!strings.Contains(page, "http.token_file") {
		t.Errorf("in a browser: got %d %s, want a page that says what to do", code, page)
	}
	code, page, header = shut.try("GET", "/", "", "Accept", "text/html", "Host", "<script>alert(1)</script>")
	if strings.Contains(page, "<script>") ||
		!strings.HasPrefix(header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("a host that is code: got %d %s", code, page)
	}
	file := tokenFile(t, planted)
	door := s.door(web.Config{Address: "0.0.0.0:0", TokenFile: file})
	for path, want := range map[string]int{"/api/v1/status": 401, "/api/v1/dlq": 401, "/api/v1/parked": 401,
		"/api/v1/stream": 401, "/metrics": 200, "/": 200} {
		if got, body, _ := door.try("GET", path, "", "Host", "relay.internal"); got != want {
			t.Errorf("with a token that is not sent, %s: got %d %.100s, want %d", path, got, body, want)
		}
	}
	for _, row := range []struct {
		file, sent string
		want       int
	}{{planted, planted, 200}, {"another", planted, 401}, {"another", "another", 200}, {" \n", "", 503},
		{planted, planted, 200}} {
		if err := os.WriteFile(file, []byte(row.file), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, body, _ := door.try("GET", "/api/v1/status", "", "Authorization", "Bearer "+row.sent); got != row.want {
			t.Errorf("token %q sent, %q in the file: got %d %.100s, want %d", row.sent, row.file, got, body, row.want)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got, body, _ := door.try("GET", "/api/v1/status", "", "Authorization", bearer); got != 503 ||
		strings.Contains(body, file) {
		t.Errorf("no token file: got %d %s, want 503 without its path", got, body)
	}
}

// Breaks it catches: a change that needs no token on this machine; a payload that is shown though that is off; a list
// that does not refuse what it does not know; a replay that is asked for over HTTP and not done. Seen to fail with
// payloads always shown.
func TestDeadLettersOverHTTP(t *testing.T) {
	t.Parallel()
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	s.pg.Exec(t, fmt.Sprintf(insertOrder, "[]")+";"+fmt.Sprintf(insertOrder, `{"a": 1}`))
	harness.Eventually(t, 30*time.Second, "a dead letter", func(context.Context) string {
		if _, body, _ := s.ask("GET", "/api/v1/dlq"); !strings.Contains(body, "INVALID_HEADERS") ||
			strings.Count(body, `"dead_at"`) != 2 {
			return body
		}
		return ""
	})
	id := s.pg.Query(t, "SELECT original_id FROM outbox_events_dlq ORDER BY id LIMIT 1")
	var one struct {
		ID, Key, Code string
		Payload       any
		Encoding      string `json:"payload_encoding"`
		Hidden        bool   `json:"payload_hidden"`
	}
	if code, body, _ := s.ask("GET", "/api/v1/dlq/"+id); code != 200 || json.Unmarshal([]byte(body), &one) != nil ||
		one.ID != id || one.Key != "a" || one.Encoding != "json" || fmt.Sprint(one.Payload) != "map[]" {
		t.Errorf("one dead letter: got %d %s", code, body)
	}
	closed := s.door(web.Config{Address: "127.0.0.1:0", TokenFile: tokenFile(t, planted), Read: web.ReadOpen,
		HidePayloads: true})
	if code, body, _ := closed.try("GET", "/api/v1/dlq/"+id, ""); code != 200 ||
		!strings.Contains(body, `"payload_hidden": true`) || strings.Contains(body, `"payload":`) ||
		strings.Contains(body, `"headers"`) {
		t.Errorf("with http.show_payloads off: got %d %s", code, body)
	}
	if code, body, _ := s.ask("POST", "/api/v1/dlq/replay"); code != 403 || !strings.Contains(body, "http.token_file") {
		t.Errorf("a change without a token file: got %d %s", code, body)
	}
	for path, want := range map[string]int{
		"/api/v1/dlq?topik=x": 400, "/api/v1/dlq?limit=0": 400, "/api/v1/dlq?limit=100000": 400, "/api/v1/dlq?after=x": 400,
		"/api/v1/dlq?state=odd": 400, "/api/v1/dlq?class=zzz": 400, "/api/v1/parked?class=zzz": 400,
		"/api/v1/dlq?older_than=x": 400, "/api/v1/dlq?id=x": 400, "/api/v1/dlq?key=%00": 400, "/api/v1/dlq?key=a&key=b": 400,
		"/api/v1/parked?after=!": 400,
		"/api/v1/dlq/x":          404, "/api/v1/requests/1": 404, "/api/v1/requests/x": 404, "/api/v1/parked": 200,
		"/api/v1/dlq?state=all&type=made&class=permanent&newer_than=1h&limit=1": 200,
	} {
		if code, body, _ := s.ask("GET", path); code != want {
			t.Errorf("%s: got %d %.200s, want %d", path, code, body, want)
		}
	}
	s.pg.Exec(t, "UPDATE outbox_events_dlq SET headers = NULL") // as if someone had fixed them
	if code, body, _ := closed.try("POST", "/api/v1/dlq/replay", `{"ids": ["`+id+`"]}`, "Content-Type", jsonType,
		"Authorization", bearer); code != 202 {
		t.Fatalf("replay: got %d %s", code, body)
	}
	harness.Eventually(t, 30*time.Second, "the replayed event is closed", func(context.Context) string {
		_, body, _ := s.ask("GET", "/api/v1/dlq?state=replayed")
		if !strings.Contains(body, `"resolved_by": "api@127.0.0.1"`) || !strings.Contains(body, id) {
			return body
		}
		return ""
	})
}
