package admin_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/cdc-relay/cdc-relay/admin"
)

// A proxy in front sets Host: localhost, as docs/security.md says, so that Origin and Host differ. Breaks it catches: a
// login or a change that is refused for that, and one that a page of another origin, site or port asks for, whatever
// else it says. Seen to fail with Origin compared in spite of what the browser says, with its word not looked at, with
// "none" taken for "same-origin", and with same-site let in.
func TestPagesBehindAProxyMayAskAndOthersMayNot(t *testing.T) {
	t.Parallel()
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	d := s.door(admin.Config{Address: "127.0.0.1:0", TokenFile: tokenFile(t, planted)})
	const own = "https://relay.example"
	cookie, _ := d.logIn("ann", "Host", "localhost", "Origin", own, "Sec-Fetch-Site", "same-origin")
	for _, row := range []struct {
		name, origin, site string
		want               int
	}{
		{"the page itself", own, "same-origin", 202},
		{"the page itself, without Origin", "", "same-origin", 202},
		{"another site", "https://evil.example", "cross-site", 403},
		{"another site that names this host", "http://localhost", "cross-site", 403},
		{"another host of the site", "https://wiki.relay.example", "same-site", 403},
		{"another host of the site that names this host", "http://localhost", "same-site", 403},
		{"no page", own, "none", 403},
		{"no page, without Origin", "", "none", 403},
		{"a word that nobody knows", own, "same-party", 403},
		{"a browser that says nothing", own, "", 403},
		{"nothing said at all", "", "", 403},
		{"a browser that says nothing, without a proxy", "http://localhost", "", 202},
	} {
		headers := []string{"Content-Type", jsonType, "Cookie", cookie, "Host", "localhost"}
		for name, value := range map[string]string{"Origin": row.origin, "Sec-Fetch-Site": row.site} {
			if value != "" {
				headers = append(headers, name, value)
			}
		}
		if got, body, _ := d.try("POST", "/api/v1/resume", "{}", headers...); got != row.want {
			t.Errorf("%s: got %d %s, want %d", row.name, got, body, row.want)
		}
	}
	if code, body, _ := d.try("GET", "/api/v1/status", "", "Host", "evil.example", "Origin", "http://evil.example",
		"Sec-Fetch-Site", "same-origin"); code != 403 {
		t.Errorf("a page that made its name point here: got %d %.100s, want 403", code, body)
	}
}

// Breaks it catches: a browser that cannot log in, or change anything, through a proxy. Seen to fail with Origin
// compared in spite of what the browser says.
func TestConsoleWorksBehindAProxy(t *testing.T) {
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	d := s.door(admin.Config{Address: "127.0.0.1:0", TokenFile: tokenFile(t, planted)})
	to, err := url.Parse(d.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = "localhost"
	}})
	t.Cleanup(proxy.Close)
	b := openTab(t)
	b.screen(1440, "light")
	b.do("open the console", chromedp.Navigate(proxy.URL+"/"))
	b.wait("the relay is shown as active", `document.getElementById("role").textContent.startsWith("active")`)
	b.choose("#pause")
	b.wait("it asks first", has("Pause the relay?"))
	b.fill("#ask-name", "ann")
	b.fill("#ask-token", planted+"\r")
	b.wait("it is paused", has("Paused by ann via console@127.0.0.1"))
	b.do("leave, before the proxy ends", chromedp.Navigate("about:blank"))
}
