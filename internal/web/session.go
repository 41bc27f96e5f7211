package web

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	sessionLasts = 12 * time.Hour
	longestName  = 80 // bytes
	// Of logins that are refused, on the whole listener.
	mostRefused  = 10
	refusedEvery = time.Minute
)

// caller is who asks: a program that has the token, or a person who logged in with it and gave a name.
type caller struct {
	name string    // of a person; empty: a program
	end  time.Time // of the person's session
}

// who returns the recorded name. A token does not identify its holder, so a program may give a name; a person gave it
// at the login, and cannot be another one afterwards.
func (c caller) who(said, remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	if c.name != "" {
		return c.name + " via console@" + host
	}
	if said = strings.TrimSpace(said); said == "" {
		return "api@" + host
	}
	return said + " via api@" + host
}

// cookieName has the port in it: a browser does not tell the ports of a host apart, and there may be a relay on each.
func cookieName(a net.Addr) string {
	if tcp, is := a.(*net.TCPAddr); is {
		return "cdc_relay_" + strconv.Itoa(tcp.Port)
	}
	return "cdc_relay"
}

// sign returns the content of a session's cookie: name, end, and their MAC under the token. Nothing is stored: it
// outlives a restart, and a new token ends all sessions.
func sign(token string, c caller) string {
	text := base64.RawURLEncoding.EncodeToString([]byte(c.name)) + "." + strconv.FormatInt(c.end.Unix(), 10)
	return text + "." + base64.RawURLEncoding.EncodeToString(codeOfSession(token, text))
}

func codeOfSession(token, text string) []byte {
	code := hmac.New(sha256.New, []byte(token))
	code.Write([]byte("cdc-relay session 1\n" + text)) // and nothing else that the token may sign one day
	return code.Sum(nil)
}

// verify reads what sign made. The time it takes does not depend on the token.
func verify(token, cookie string, now time.Time) (c caller, ok bool) {
	dot := strings.LastIndexByte(cookie, '.')
	if dot < 0 {
		return c, false
	}
	code, err := base64.RawURLEncoding.DecodeString(cookie[dot+1:])
	if err != nil || !hmac.Equal(code, codeOfSession(token, cookie[:dot])) {
		return c, false
	}
	name, end, _ := strings.Cut(cookie[:dot], ".")
	text, err := base64.RawURLEncoding.DecodeString(name)
	unix, errEnd := strconv.ParseInt(end, 10, 64)
	c = caller{string(text), time.Unix(unix, 0).UTC()}
	return c, err == nil && errEnd == nil && c.name != "" && now.Before(c.end)
}

// checkName refuses a name that would not be read as it was written, or break a line.
func checkName(name string) error {
	odd := func(r rune) bool { return !unicode.IsPrint(r) || r == '@' } // see who: what is behind one is ours
	if name == "" || len(name) > longestName || !utf8.ValidString(name) || strings.ContainsFunc(name, odd) {
		return fmt.Errorf("name: want 1 to %d bytes of UTF-8 that can be printed, without @: it stands beside what you "+
			"change, and in front of the address that you come from", longestName)
	}
	return nil
}

// attempts bounds how many failed logins are answered as such, and logged. The right token always passes, or anyone
// could lock out the people whose token it is.
type attempts struct {
	mu    sync.Mutex
	since time.Time // of the period; guarded by mu
	used  int       // in it; guarded by mu
}

// take reports whether one more is answered, else in how long.
func (a *attempts) take(now time.Time) (ok bool, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Sub(a.since) >= refusedEvery {
		a.since, a.used = now, 0
	}
	if a.used >= mostRefused {
		return false, a.since.Add(refusedEvery).Sub(now)
	}
	a.used++
	return true, 0
}

// sessions logs people in and out.
type sessions struct{ guard guard }

const sessionPath = "/api/v1/session"

func (s sessions) register(mux *http.ServeMux) {
	mux.HandleFunc("GET "+sessionPath, s.show)
	mux.HandleFunc("POST "+sessionPath, s.begin)
	mux.HandleFunc("DELETE "+sessionPath, s.end)
}

// told describes a session to its page.
type told struct {
	Name    *string    `json:"name"` // null: no one is logged in
	End     *time.Time `json:"expires_at"`
	Changes bool       `json:"changes"` // http.token_file is set, so that things can be changed here
}

func (s sessions) show(w http.ResponseWriter, req *http.Request) {
	t := told{Changes: s.guard.c.TokenFile != ""}
	if token, _, err := s.guard.token(); err == nil {
		if c, ok := s.guard.session(token, req); ok {
			t.Name, t.End = &c.name, &c.end
		}
	}
	answer(w, http.StatusOK, t)
}

// login is the body of a login.
type login struct {
	Token string `json:"token"`
	Name  string `json:"name"`
}

func (s sessions) begin(w http.ResponseWriter, req *http.Request) {
	var body login
	if !readJSON(w, req, &body) {
		return
	}
	if s.guard.c.TokenFile == "" {
		s.guard.refuse(w, req, http.StatusForbidden, errors.New("no token to log in with: "+needsTokenFile))
		return
	}
	token, code, err := s.guard.token()
	if err != nil {
		s.guard.refuse(w, req, code, err)
		return
	}
	now := time.Now()
	if !same(token, strings.TrimSpace(body.Token)) {
		if ok, wait := s.guard.logins.take(now); !ok {
			w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
			fail(w, http.StatusTooManyRequests, fmt.Errorf("the token is wrong, as in %d logins before it", mostRefused))
			return
		}
		s.guard.refuse(w, req, http.StatusUnauthorized, errors.New("the token is missing or wrong"))
		return
	}
	c := caller{strings.TrimSpace(body.Name), now.Add(sessionLasts).UTC().Truncate(time.Second)}
	if err := checkName(c.name); err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	s.guard.c.Logger.Info().Str("audit", "login").Str("who", c.who("", req.RemoteAddr)).Str("from", req.RemoteAddr).
		Time("until", c.end).Msg("logged in over HTTP")
	http.SetCookie(w, s.guard.cookie(req, sign(token, c), c.end.Sub(now)))
	answer(w, http.StatusOK, told{&c.name, &c.end, true})
}

// end has the browser forget the session.
func (s sessions) end(w http.ResponseWriter, req *http.Request) {
	http.SetCookie(w, s.guard.cookie(req, "", -time.Second))
	answer(w, http.StatusOK, told{Changes: s.guard.c.TokenFile != ""})
}

// cookie is one that no script reads and no page of another site sends. It is for TLS only where the browser came by
// TLS, to a proxy in front: who lies about that harms no one else.
func (g guard) cookie(req *http.Request, value string, lasts time.Duration) *http.Cookie {
	return &http.Cookie{
		Name: g.cookieName, Value: value, Path: "/", MaxAge: int(lasts / time.Second), HttpOnly: true,
		SameSite: http.SameSiteStrictMode, Secure: req.TLS != nil || req.Header.Get("X-Forwarded-Proto") == "https",
	}
}

// session is that of the request's cookie. Another server of this host can plant cookies of this name: any that holds
// will do.
func (g guard) session(token string, req *http.Request) (c caller, ok bool) {
	for _, cookie := range req.CookiesNamed(g.cookieName) {
		if c, ok = verify(token, cookie.Value, time.Now()); ok {
			return c, true
		}
	}
	return caller{}, false
}
