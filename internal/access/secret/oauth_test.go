package secret

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// issuer is a token endpoint whose n-th token is token-n. It counts what it was asked.
type issuer struct {
	server *httptest.Server
	asked  atomic.Int32
	form   atomic.Pointer[url.Values] // of the last request
	answer atomic.Pointer[http.HandlerFunc]
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := new(issuer)
	i.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer := i.answer.Load(); answer != nil {
			(*answer)(w, r)
			return
		}
		id, secret, _ := r.BasicAuth()
		if id != "relay" || secret != "hunter2" {
			deny(w, r)
			return
		}
		_ = r.ParseForm()
		i.form.Store(&r.PostForm)
		give(w, fmt.Sprintf("token-%d", i.asked.Add(1)), 3600)
	}))
	t.Cleanup(i.server.Close)
	return i
}

func deny(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusUnauthorized)
	_, _ = fmt.Fprint(w, `{"error": "invalid_client", "error_description": "not hunter2"}`)
}

func give(w http.ResponseWriter, token string, seconds int) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": token, "token_type": "bearer", "expires_in": seconds})
}

// client asks the issuer, with a secret of its own file.
func (i *issuer) client(t *testing.T) ClientCredentials {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return ClientCredentials{TokenURL: i.server.URL + "/token", ClientID: "relay", SecretFile: file,
		Scope: "produce read", Parameters: map[string]string{"audience": "kafka"}}
}

// Breaks it catches: a request that lacks what was configured, a token that is not kept, or kept after a refusal. Seen
// to fail without the parameters, and with a source for each caller.
func TestATokenIsAskedForOnceUntilItIsRefused(t *testing.T) {
	i := newIssuer(t)
	c := i.client(t)
	for range 3 {
		if got := read(t, OAuth("kafka.sasl.oauth", c)); got != "token-1" {
			t.Errorf("got %q, want the first token", got)
		}
	}
	want := url.Values{"grant_type": {"client_credentials"}, "scope": {"produce read"}, "audience": {"kafka"}}
	if got := i.form.Load(); got.Encode() != want.Encode() {
		t.Errorf("asked with %v, want %v", got, want)
	}
	if !OAuth("kafka.sasl.oauth", c).Refused() {
		t.Error("refused: got that no other token can follow")
	}
	if got := read(t, OAuth("kafka.sasl.oauth", c)); got != "token-2" {
		t.Errorf("after a refusal: got %q, want another token", got)
	}
}

// Breaks it catches: an error that shows secret or token, does not name the key, or leaves out what the endpoint
// answered; a secret that is sent on to another address. Seen to fail with the library's error in the chain, and with
// redirects followed.
func TestWhatTheEndpointDoesWrongIsSaidWithoutSecrets(t *testing.T) {
	i := newIssuer(t)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the request was sent on to %s", r.URL)
	}))
	defer elsewhere.Close()
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		edit   func(*ClientCredentials)
		want   string
	}{
		"denied": {answer: deny, want: `answered 401 Unauthorized; it said: "invalid_client not …"`},
		"broken": {answer: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			_, _ = fmt.Fprint(w, "<html>hunter2</html>")
		}, want: "answered 502 Bad Gateway"},
		"sent on": {answer: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		}, want: "answered 307"},
		"no token": {answer: func(w http.ResponseWriter, _ *http.Request) { give(w, "", 60) }, want: "ask http"},
		"not JSON": {answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprint(w, "hunter2")
		}, want: "ask http"},
		"other type": {answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprint(w, `{"access_token": "hunter2", "token_type": "mac"}`)
		}, want: `of the type "MAC"`},
		"away":      {edit: func(c *ClientCredentials) { c.TokenURL = "http://127.0.0.1:1/token" }, want: "refused"},
		"no secret": {edit: func(c *ClientCredentials) { c.SecretFile = "/no/such/file" }, want: "/no/such/file"},
		"no CA":     {edit: func(c *ClientCredentials) { c.CAFile = c.SecretFile }, want: "holds no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			i.answer.Store(nil)
			if c.answer != nil {
				i.answer.Store(&c.answer)
			}
			credentials := i.client(t)
			if c.edit != nil {
				c.edit(&credentials)
			}
			_, err := OAuth("kafka.sasl.oauth", credentials).Read(t.Context())
			if err == nil {
				t.Fatal("got no error")
			}
			for _, want := range []string{"kafka.sasl.oauth", c.want} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got the error %q, want %q in it", err, want)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows a secret: %v", err)
			}
		})
	}
}

// Breaks it catches: an endpoint that does not answer holding a login up beyond its time. Seen to fail with a request
// without the context.
func TestAHangingEndpointIsGivenUp(t *testing.T) {
	i := newIssuer(t)
	hang := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // before, the server does not notice that the client has gone
		<-r.Context().Done()
	})
	i.answer.Store(&hang)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := OAuth("kafka.sasl.oauth", i.client(t)).Read(ctx); err == nil ||
		!strings.Contains(err.Error(), "gave no token within") {
		t.Errorf("got %v, want that it gave no token", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v, want about 100ms", took)
	}
}

// Breaks it catches: a token used until it is too late to get another one, a login that fails although the old token
// is good, and an endpoint that is asked at each login while it is away. Seen to fail with tokens kept to their end,
// with the error of a renewal returned, and without the pause.
func TestAPasswordIsRenewedInTheLastFifthOfItsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, away := 0, false
		s := shared("key", t.Name(), func(context.Context) (answer, error) {
			asked++
			if away {
				return answer{}, fmt.Errorf("away")
			}
			return answer{password: fmt.Sprint(asked), asked: time.Now(), until: time.Now().Add(100 * time.Minute)}, nil
		})
		at := func(minutes float64, password string, times int) {
			t.Helper()
			got, err := s.Read(t.Context())
			if got != password || (err != nil) != (password == "") || asked != times {
				t.Errorf("minute %v: got %q after %d requests and the error %v, want %q after %d", minutes, got, asked, err,
					password, times)
			}
		}
		at(0, "1", 1)
		time.Sleep(79 * time.Minute)
		at(79, "1", 1)
		away = true
		time.Sleep(2 * time.Minute)
		at(81, "1", 2)
		at(81, "1", 2) // not at once again
		time.Sleep(time.Minute)
		at(82, "1", 3)
		time.Sleep(17*time.Minute + 40*time.Second)
		at(99.67, "", 4) // 20 s before its end
		away = false
		at(99.67, "5", 5)
	})
}
