package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/internal/web"
)

// several serves the site's relay as acme, beside bolt, which is halted.
func (s *site) several(c web.Config) (d *door, many *web.Many) {
	s.t.Helper()
	c.Address, c.Logger = "127.0.0.1:0", zerolog.Nop()
	server, err := web.Open(c)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := server.Close(); err != nil {
			s.t.Errorf("close the listener: %v", err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	many = server.Many("shop", "1.2.3")
	many.Serve("acme", s.relay, nil)
	many.Halted("bolt", "bolt.yaml:3: unknown key", "correct bolt.yaml")
	many.Open()
	return &door{t: s.t, url: "http://" + server.Address()}, many
}

// Breaks it catches: a path that answers about another relay than the named one, or about any without a name; one that
// needs no token because it names a relay; a relay whose halt, end or return its metrics do not show.
func TestPathsAreOfTheRelayThatTheyName(t *testing.T) {
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	d, many := s.several(web.Config{TokenFile: tokenFile(t, planted)})
	token := []string{"Authorization", "Bearer " + planted}
	for _, row := range []struct {
		method, path string
		headers      []string
		code         int
		want         string
	}{
		{"GET", "/readyz", nil, 200, "bolt: halted (configuration): bolt.yaml:3"},
		{"GET", "/readyz?degraded", nil, 503, `"relays_ready": 1`},
		{"GET", "/readyz?relay=acme&degraded", nil, 200, `"state": "active"`},
		{"GET", "/readyz?relay=bolt", nil, 503, "bolt.yaml:3"},
		{"GET", "/health?relay=nobody", nil, 404, "no relay"},
		{"GET", "/livez", nil, 200, `"live": true`},
		{"GET", "/livez?relay=bolt", nil, 200, `"live": true`},
		{"GET", "/api/v1/status", nil, 401, "token"},
		{"GET", "/api/v1/status?relay=acme", nil, 401, "token"},
		{"GET", "/api/v1/status", token, 200, `"relay": "bolt"`},
		{"GET", "/api/v1/status?relay=acme", token, 200, `"relay": "acme"`},
		{"GET", "/api/v1/dlq?relay=acme&limit=3", token, 200, `"items"`},
		{"GET", "/api/v1/dlq?relay=acme&limt=3", token, 400, "limt"},
		{"GET", "/api/v1/dlq", token, 400, "name one by the parameter relay"},
		{"POST", "/api/v1/pause", token, 400, "name one"},
		{"POST", "/api/v1/pause?relay=bolt", token, 503, "does not run"},
		{"POST", "/api/v1/pause?relay=acme", nil, 401, "token"},
		{"POST", "/api/v1/retry?relay=acme", append(token, "Content-Type", "application/json"), 202, `"request"`},
		{"GET", "/metrics", nil, 200, `cdc_relay_halted{code="configuration",relay="bolt",service="shop"} 1`},
		{"GET", "/docs/runbooks/configuration", nil, 200, "What to do"},
	} {
		code, body, _ := d.try(row.method, row.path, `{"all": true}`, row.headers...)
		if code != row.code || !strings.Contains(body, row.want) {
			t.Errorf("%s %s: got %d, want %d with %q: %.300s", row.method, row.path, code, row.code, row.want, body)
		}
	}
	const removed = `cdc_relay_removed_timestamp_seconds{relay="bolt",service="shop"}`
	many.Gone("bolt")
	if _, body, _ := d.try("GET", "/metrics", ""); !strings.Contains(body, removed) || strings.Contains(body, "_halted{") {
		t.Errorf("the metrics of a relay that is gone: got %.300s", body)
	}
	many.Waits("bolt", "the database is away")
	if _, body, _ := d.try("GET", "/metrics", ""); strings.Contains(body, removed) {
		t.Error("a relay that is back is still removed in the metrics")
	}
	code, body, _ := d.try("GET", "/readyz?relay=bolt", "")
	if code != 503 || !strings.Contains(body, "database is away") {
		t.Errorf("a relay that waits: got %d: %s", code, body)
	}
}

// Breaks it catches: a list without a relay or its reason, a console that asks for another relay's data or leads
// nowhere back, a page that people with a keyboard or a screen reader cannot use.
func TestConsoleListsRelaysAndOpensOne(t *testing.T) {
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	d, _ := s.several(web.Config{})
	b := openTab(t)
	b.do("open the list", chromedp.Navigate(d.url+"/"))
	b.wait("both relays are there", has("bolt.yaml:3")+" && "+has("active")+" && "+has("2 relays, 1 not ready"))
	b.atEachWidth("relays")
	b.do("open one", chromedp.Click(`a[data-key="acme"]`))
	b.wait("it is the console", `document.getElementById("feed").dataset.state === "live" && `+
		`document.getElementById("service").textContent === "acme" && location.search === "?relay=acme"`)
	b.do("open its dead letters", chromedp.Click(`.tabs a[href="#/dead-letters"]`))
	b.wait("they are read", has("No dead letters"))
	b.do("go back to the list", chromedp.Click("#all"))
	b.wait("it is the list", has("bolt.yaml:3"))
}
