package web_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/web"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks it catches: a relay whose console has the demo's part; a part that a page of another origin, a name that was
// made to point here, a proxy or someone without the token reaches. Seen to fail without the header asked for, and with
// the token not asked for.
func TestDemoBreaksOnlyWhatItMay(t *testing.T) {
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	var pressed atomic.Int32
	demo := &web.Demo{
		Script: []byte("// the demo's script"),
		Show:   func() any { return map[string]int32{"pressed": pressed.Load()} },
		Break: func(name string) (begin func(), err error) {
			if name != "broker" {
				return nil, errors.New("not now")
			}
			return func() { pressed.Add(1) }, nil
		},
	}
	const path, script, broker = "/api/v1/demo/break", "/console/demo.js", `{"incident": "broker"}`
	plain := s.door(web.Config{Address: "127.0.0.1:0"})
	if _, page, _ := plain.try(http.MethodGet, "/", ""); strings.Contains(page, script) {
		t.Error("the page of a relay loads the demo's script")
	}
	for _, p := range []string{script, "/api/v1/demo"} {
		if code, _, _ := plain.try(http.MethodGet, p, ""); code != http.StatusNotFound {
			t.Errorf("a relay: %s: got %d, want %d", p, code, http.StatusNotFound)
		}
	}
	if code, _, _ := plain.try(http.MethodPost, path, broker); code != http.StatusNotFound {
		t.Errorf("a relay: %s: got %d, want %d", path, code, http.StatusNotFound)
	}

	d := s.door(web.Config{Address: "127.0.0.1:0", Demo: demo})
	if _, page, _ := d.try(http.MethodGet, "/", ""); strings.Count(page, `src="`+script+`"></script>`) != 1 {
		t.Errorf("the demo's page loads no %s:\n%s", script, page)
	}
	if _, text, header := d.try(http.MethodGet, script, ""); text != string(demo.Script) ||
		!strings.HasPrefix(header.Get("Content-Type"), "text/javascript") {
		t.Errorf("the script: got %q as %q", text, header.Get("Content-Type"))
	}
	locked := s.door(web.Config{Address: "127.0.0.1:0", Demo: demo, TokenFile: tokenFile(t, planted), Read: web.ReadOpen})
	away := s.door(web.Config{Address: "0.0.0.0:0", Demo: demo})
	is := []string{"Content-Type", "application/json"}
	bearer := []string{"Authorization", "Bearer " + planted}
	for _, c := range []struct {
		what    string
		d       *door
		body    string
		headers []string
		want    int
	}{
		{"a page of this origin", d, broker, []string{"Origin", d.url}, http.StatusAccepted},
		{"a page of this origin, as the browser says", d, broker, []string{"Sec-Fetch-Site", "same-origin"},
			http.StatusAccepted},
		{"no page", d, broker, nil, http.StatusForbidden},
		{"another origin", d, broker, []string{"Origin", "http://evil.example"}, http.StatusForbidden},
		{"another port", d, broker, []string{"Origin", plain.url}, http.StatusForbidden},
		{"another site", d, broker, []string{"Origin", d.url, "Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		{"a name made to point here", d, broker, []string{"Origin", "http://evil.example", "Host", "evil.example"},
			http.StatusForbidden},
		{"a proxy", d, broker, []string{"Origin", d.url, "X-Forwarded-For", "192.0.2.1"}, http.StatusForbidden},
		{"a form", d, broker, []string{"Origin", d.url, "Content-Type", "text/plain"}, http.StatusUnsupportedMediaType},
		{"an unknown member", d, `{"incident": "broker", "all": true}`, []string{"Origin", d.url}, http.StatusBadRequest},
		{"not now", d, `{"incident": "relay"}`, []string{"Origin", d.url}, http.StatusConflict},
		{"without the token", locked, broker, []string{"Origin", locked.url}, http.StatusUnauthorized},
		{"with the token", locked, broker, bearer, http.StatusAccepted},
		{"with the token, another origin", locked, broker, append([]string{"Origin", "http://evil.example"}, bearer...),
			http.StatusForbidden},
		{"no loopback address and no token", away, broker, []string{"Origin", away.url}, http.StatusForbidden},
	} {
		before := pressed.Load()
		code, text, _ := c.d.try(http.MethodPost, path, c.body, append(is, c.headers...)...)
		if code != c.want {
			t.Errorf("%s: got %d, want %d: %s", c.what, code, c.want, text)
		}
		if c.want == http.StatusAccepted {
			harness.Eventually(t, 10*time.Second, c.what+" breaks it", func(context.Context) string {
				return map[bool]string{true: "not yet"}[pressed.Load() == before]
			})
		} else if got := pressed.Load() - before; got != 0 {
			t.Errorf("%s: it was broken, want it refused", c.what)
		}
	}
}
