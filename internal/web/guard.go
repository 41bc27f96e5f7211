package web

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// guard decides who may ask for what:
//
//   - metrics, health and the project's pages: anyone who reaches the address;
//   - everything else that reads: who has the token, or logged in with it. Without a token, or with http.read: open,
//     also anyone on this machine: at a loopback address, by a name of this machine, so that a page in a browser
//     cannot make a name of its own point here, and not by way of a proxy, which asks for others;
//   - changes: who has the token, or logged in with it, and not from a page of another origin. A browser adds the
//     cookie of a session by itself, so with one it must say that a page of this origin asks.
type guard struct {
	c          Config
	loopback   bool
	cookieName string
	warned     *atomic.Pointer[time.Time] // when a refusal was logged last
	logins     *attempts
}

func newGuard(c Config, a net.Addr) guard {
	return guard{c, isLoopback(a), cookieName(a), new(atomic.Pointer[time.Time]), new(attempts)}
}

// open are the paths that no one needs a token for, on any address.
var open = []string{"/metrics", "/livez", "/readyz", "/healthz", "/health"}

func isOpen(path string) bool { return slices.Contains(open, path) || isPage(path) }

func isPage(path string) bool { return path == "/docs" || strings.HasPrefix(path, "/docs/") }

// refusalsEvery bounds how often refusals are logged; otherwise refused clients could fill the log.
const refusalsEvery = time.Second

const (
	needsTokenFile = "write a token into a file that only the relay can read, and name it in http.token_file"
	sendToken      = "send it as the header Authorization: Bearer <token>"
)

// wrap guards all paths, and closes the answers to everything that a browser might do with them.
func (g guard) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		header := w.Header()
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		if !isOpen(req.URL.Path) {
			header.Set("Cache-Control", "no-store")
			if code, err := g.mayRead(req); err != nil {
				g.refuse(w, req, code, err)
				return
			}
		}
		next.ServeHTTP(w, req)
	})
}

// mayRead reports whether the request may have anything but metrics, health and the pages, else the answer's code and
// why not.
func (g guard) mayRead(req *http.Request) (code int, err error) {
	api := strings.HasPrefix(req.URL.Path, "/api/")
	switch {
	case !g.loopback && g.c.TokenFile == "":
		return http.StatusForbidden,
			errors.New("http.listen is not a loopback address, so without a token only metrics, health and /docs are served: " +
				needsTokenFile + ", or listen on 127.0.0.1")
	case g.loopback && !g.named(req.Host):
		return http.StatusForbidden,
			fmt.Errorf("the request names this host %.100q, which does not name a loopback address: use 127.0.0.1 or "+
				"localhost, or let the proxy in front set the header Host so", req.Host)
	case api && !sameOrigin(req):
		return http.StatusForbidden, errors.New("a page of another origin may not ask")
	case g.isLocal(req) && (g.c.TokenFile == "" || g.c.Read == ReadOpen):
		return 0, nil
	case g.c.TokenFile == "":
		return http.StatusForbidden,
			fmt.Errorf("the request came through a proxy (header %s), and without a token only this machine may read: %s",
				forwarded(req), needsTokenFile)
	case api && (req.URL.Path != sessionPath || req.Method == http.MethodGet):
		_, code, err = g.identify(req)
		return code, err
	}
	return 0, nil
}

// isLocal reports whether the request was made on this machine. What a proxy passes on arrives from this machine, too.
func (g guard) isLocal(req *http.Request) bool { return g.loopback && forwarded(req) == "" }

// forwarded is a header of the request that only proxies add, empty without one: Forwarded (RFC 7239), Via (RFC 9110),
// and those that proxies use by habit.
func forwarded(req *http.Request) string {
	for name := range req.Header {
		switch {
		case name == "Forwarded", name == "Via", name == "X-Real-Ip", strings.HasPrefix(name, "X-Forwarded-"):
			return name
		}
	}
	return ""
}

// mayChange reports whether the request may change something, and whose it is; mayRead has let it pass.
func (g guard) mayChange(req *http.Request) (c caller, code int, err error) {
	if g.c.TokenFile == "" {
		return c, http.StatusForbidden, errors.New("changes need a token: " + needsTokenFile + "; " + sendToken)
	}
	if c, code, err = g.identify(req); err != nil {
		return c, code, err
	}
	if c.name != "" && !saysOrigin(req) {
		return c, http.StatusForbidden, errors.New("a change by a session needs the header Origin, which browsers send: a " +
			"program sends the token")
	}
	return c, 0, nil
}

// saysOrigin reports whether a browser said whose page asks. mayRead has seen that it is one of this origin.
func saysOrigin(req *http.Request) bool {
	return req.Header.Get("Origin") != "" || req.Header.Get("Sec-Fetch-Site") == "same-origin"
}

// token is the file's, which is read each time: replacing the file is all that a rotation needs.
func (g guard) token() (token string, code int, err error) {
	text, err := os.ReadFile(g.c.TokenFile)
	if err != nil {
		return "", http.StatusServiceUnavailable, errors.New("http.token_file cannot be read: see the relay's log")
	}
	if token = strings.TrimSpace(string(text)); token == "" {
		return "", http.StatusServiceUnavailable, errors.New("http.token_file is empty")
	}
	return token, 0, nil
}

// shortToken is the least length of a token that cannot be guessed: 16 random bytes in hexadecimal.
const shortToken = 32

// warnOfShort warns of a token that may be guessed: nothing slows down those who try.
func (g guard) warnOfShort() {
	if g.c.TokenFile == "" {
		return
	}
	if token, _, err := g.token(); err == nil && len(token) < shortToken {
		g.c.Logger.Warn().Int("bytes", len(token)).Msg("the token of http.token_file is shorter than 32 bytes, and may be " +
			"guessed: replace it, as by openssl rand -hex 32")
	}
}

// same compares tokens. What the time of the answer tells does not depend on either.
func same(want, got string) bool {
	a, b := sha256.Sum256([]byte(want)), sha256.Sum256([]byte(got))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// identify says whose the request is, by the token that was sent, or, without one, by its session.
func (g guard) identify(req *http.Request) (c caller, code int, err error) {
	token, code, err := g.token()
	if err != nil {
		return c, code, err
	}
	header := req.Header.Get("Authorization")
	scheme, sent, _ := strings.Cut(header, " ")
	if strings.EqualFold(scheme, "Bearer") && same(token, strings.TrimSpace(sent)) {
		return c, 0, nil
	}
	if header == "" {
		if c, ok := g.session(token, req); ok {
			return c, 0, nil
		}
	}
	return c, http.StatusUnauthorized, errors.New("the token is missing or wrong, and no session is open: " + sendToken)
}

// refuse answers, and notes that someone was refused.
func (g guard) refuse(w http.ResponseWriter, req *http.Request, code int, why error) {
	now := time.Now()
	if last := g.warned.Load(); (last == nil || now.Sub(*last) > refusalsEvery) && g.warned.CompareAndSwap(last, &now) {
		line := g.c.Logger.Warn().Str("from", req.RemoteAddr).Str("method", req.Method).Int("code", code).Str("reason",
			why.Error())
		if code == http.StatusServiceUnavailable {
			_, err := os.Stat(g.c.TokenFile)
			line.AnErr("token_file", err)
		}
		line.Msg("HTTP request refused")
	}
	if code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="cdc-relay"`)
	}
	if strings.Contains(req.Header.Get("Accept"), "text/html") && !strings.HasPrefix(req.URL.Path, "/api/") {
		showRefusal(w, code, why)
		return
	}
	fail(w, code, why)
}

// refusal is the page around the reason.
const refusal = `<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <title>Not served here · cdc-relay</title>
  <link rel="stylesheet" href="/docs/handbook.css">
</head>
<body>
  <header><a href="/docs/">cdc-relay docs</a></header>
  <main>
    <h1>The console is not served here</h1>
    <p>{{reason}}.</p>
    <p>Without it: <a href="/metrics">metrics</a>, <a href="/readyz">health with its reasons</a>, and
      <a href="/docs/security#http">who may do what over HTTP</a>.</p>
  </main>
</body>
</html>
`

// showRefusal tells a person in a browser what it tells programs in JSON.
func showRefusal(w http.ResponseWriter, code int, why error) {
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	w.WriteHeader(code)
	page := strings.Replace(refusal, "{{reason}}", html.EscapeString(why.Error()), 1)
	_, _ = io.WriteString(w, page) // the client is gone: no one to tell
}

// named reports whether the host is one by which this machine is reached at a loopback address.
func (g guard) named(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	configured, _, _ := net.SplitHostPort(g.c.Address)
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || host == strings.ToLower(configured) && host != "" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// sameOrigin reports whether a browser, if it was one, sent the request for a page of ours, or for no one's. See
// https://www.w3.org/TR/fetch-metadata/ and https://fetch.spec.whatwg.org/#origin-header.
//
// What the browser says of the site is enough: it compares the origins that it sees itself, and no page can set the
// header. A proxy in front gives the request another Host, so that Origin and Host differ for the page that it serves.
// They are compared where the browser says nothing, as it does to an address that is neither HTTPS nor this machine's.
func sameOrigin(req *http.Request) bool {
	switch req.Header.Get("Sec-Fetch-Site") {
	case "same-origin":
		return true
	case "", "none":
	default:
		return false
	}
	origin := req.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, req.Host)
}
