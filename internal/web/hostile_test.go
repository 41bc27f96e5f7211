package web_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cdc-relay/cdc-relay/internal/web"
)

// Each row is input that Postgres or a parser chokes on. Breaks it catches: an answer that blames the server for it
// (seen to fail with the filter's texts not checked: 503), or that does not name the field.
func TestInputThatNothingCanMatchIsRefusedByName(t *testing.T) {
	t.Parallel()
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	d := s.door(web.Config{Address: "127.0.0.1:0", TokenFile: tokenFile(t, planted), Read: web.ReadOpen})
	for _, row := range []struct{ method, path, body, say string }{
		{"POST", "/api/v1/dlq/replay", `{"filter": {"key": "\u0000"}}`, "key:"},
		{"POST", "/api/v1/dlq/discard", `{"filter": {"type": "a\u0000b"}}`, "type:"},
		{"POST", "/api/v1/retry", `{"filter": {"topic": "\u0000"}}`, "topic:"},
		{"POST", "/api/v1/retry", `{"ids": ["\u0000"]}`, "id:"},
		{"POST", "/api/v1/retry", "{\"filter\": {\"key\": \"\xff\"}}", "UTF-8"},
		{"POST", "/api/v1/retry", `{"filter": {"older_than": "-200000d"}}`, "7d"},
		{"GET", "/api/v1/dlq?key=%00", "", "key:"},
		{"GET", "/api/v1/dlq?type=%ff", "", "type:"},
		{"GET", "/api/v1/parked?topic=%00", "", "topic:"},
		{"GET", "/api/v1/parked?after=eyJ0IjoiXHUwMDAwIn0", "", "cursor"},
		{"GET", "/api/v1/dlq?aggregate=order", "", "TYPE/ID"},
		{"GET", "/api/v1/parked?aggregate=a%00/b", "", "aggregate:"},
		{"GET", "/api/v1/dlq?position=1/2/x", "", "0/16B3748"},
		{"POST", "/api/v1/dlq/replay", `{"filter": {"position": "table/x/1"}}`, "position:"},
		{"GET", "/api/v1/dlq?%zz", "", "%zz"},
		{"GET", "/api/v1/dlq?a;b", "", "semicolon"},
		{"GET", "/api/v1/status?%zz", "", "%zz"},
	} {
		if code, body, _ := d.ask(row.method, row.path, row.body); code != http.StatusBadRequest ||
			!strings.Contains(body, row.say) {
			t.Errorf("%s %s %s: got %d %.200s, want 400 with %q", row.method, row.path, row.body, code, body, row.say)
		}
	}
	if n := s.pg.Query(t, "SELECT count(*) FROM cdc_relay_request"); n != "0" {
		t.Errorf("requests after refusals only: got %s, want none", n)
	}
}

// ask sends the path as it is, escapes that are none included, with the token.
func (d *door) ask(method, target, body string) (code int, text string, err error) {
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, d.url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	path, parameters, _ := strings.Cut(target, "?")
	request.URL.Opaque, request.URL.RawQuery = "//"+request.Host+path, parameters
	request.Header.Set("Content-Type", jsonType)
	request.Header.Set("Authorization", bearer)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	if strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		return response.StatusCode, "", nil // it does not end
	}
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, string(answer), err
}

// quoted is the text in JSON, with bytes that are no UTF-8 as they are.
func quoted(text string) string {
	var out strings.Builder
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' {
			fmt.Fprintf(&out, `\u%04x`, c)
		} else {
			out.WriteByte(c)
		}
	}
	return `"` + out.String() + `"`
}

// A hostile client asks every endpoint for what it likes. Breaks it catches: an answer of 500 and above on a relay that
// is well, whatever was sent (seen to fail with the cursor's zero byte let through), and a change that no one chose.
func TestNoClientMakesTheServerFail(t *testing.T) {
	t.Parallel()
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	d := s.door(web.Config{Address: "127.0.0.1:0", TokenFile: tokenFile(t, planted), Read: web.ReadOpen})
	odd := rapid.OneOf(
		rapid.SampledFrom([]string{
			"", "\x00", "a\x00b", "\xff\xfe", "'; DROP TABLE x --", "%", "%zz", "..", "../..", "-1", "0", "1e9",
			"99999999999999999999", "9223372036854775807",
			"open", "all", "permanent", "7d", "-9999999999d", "9999999h", "NaN", "null", "{}", "💥", strings.Repeat("x", 5000),
			"019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01", "eyJ0IjoiXHUwMDAwIn0", "eyJuIjp0cnVlLCJpIjoiXHUwMDAwIn0",
		}),
		rapid.String(),
	)
	names := rapid.SampledFrom([]string{"key", "type", "class", "topic", "id", "older_than", "newer_than", "limit",
		"after", "state", "kind", "x", ""})
	paths := rapid.SampledFrom([]string{
		"/api/v1/status", "/api/v1/parked", "/api/v1/dlq", "/api/v1/dlq/", "/api/v1/requests/", "/api/v1/history",
		"/api/v1/notes", "/api/v1/config", "/api/v1/count", "/api/v1/find", "/api/v1/session",
		"/api/v1/stream", "/api/v1/", "/livez", "/metrics", "/", "/console/",
	})
	changes := rapid.SampledFrom([]string{"/api/v1/dlq/replay", "/api/v1/dlq/discard", "/api/v1/retry",
		"/api/v1/alarms/ack", "/api/v1/session"})
	want := func(t *rapid.T, method, target, body string) {
		code, answer, err := d.ask(method, target, body)
		if err != nil {
			t.Fatalf("%s %q %q: %v", method, target, body, err)
		}
		if code >= http.StatusInternalServerError {
			t.Errorf("%s %q %q: got %d %.300s, want no error of the server", method, target, body, code, answer)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		method := rapid.SampledFrom([]string{"GET", "GET", "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"}).Draw(t,
			"method")
		target := paths.Draw(t, "path")
		if strings.HasSuffix(target, "/") {
			target += url.PathEscape(odd.Draw(t, "part"))
		}
		separator := "?"
		for range rapid.IntRange(0, 3).Draw(t, "parameters") {
			value := odd.Draw(t, "value")
			if rapid.IntRange(0, 5).Draw(t, "escape") > 0 {
				value = url.QueryEscape(value)
			} else if strings.ContainsAny(value, " \r\n\t\x00") || strings.ContainsFunc(value, func(r rune) bool {
				return r < ' ' || r == 0x7f
			}) {
				continue // no line of HTTP can hold it
			}
			target, separator = target+separator+names.Draw(t, "name")+"="+value, "&"
		}
		want(t, method, target, "")
	})
	rapid.Check(t, func(t *rapid.T) {
		field := rapid.SampledFrom([]string{"key", "type", "class", "topic", "older_than", "newer_than", "until", "ids",
			"all", "x"}).Draw(t, "field")
		body := fmt.Sprintf(`{"filter": {%q: %s}, "note": %s, "who": %s}`,
			field, quoted(odd.Draw(t, "value")), quoted(odd.Draw(t, "note")), quoted(odd.Draw(t, "who")))
		if rapid.Bool().Draw(t, "ids") {
			body = fmt.Sprintf(`{"ids": [%s], "note": %s}`, quoted(odd.Draw(t, "id")), quoted(odd.Draw(t, "note")))
		}
		want(t, "POST", changes.Draw(t, "path"), body)
		want(t, "POST", changes.Draw(t, "path"), odd.Draw(t, "body"))
	})
}
