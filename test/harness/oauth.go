package harness

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// What an [Issuer] expects of who asks it for a token, and whom its tokens are for.
const (
	IssuerClient   = "relay"
	IssuerSecret   = "client-secret"
	IssuerAudience = "kafka"
)

// Issuer is an OAuth 2.0 server on this machine: it signs tokens, and issues them by client credentials at TokenURL.
type Issuer struct {
	TokenURL string
	KeyFile  string // its public key, a JSON Web Key Set

	key     *rsa.PrivateKey
	address string

	mu       sync.Mutex
	server   *http.Server // nil: away
	lifetime time.Duration
	answer   func(w http.ResponseWriter, r *http.Request) // nil: a token
	issued   int
	bursts   int       // of tokens that were asked for together
	last     time.Time // when the last burst began
}

// NewIssuer starts an issuer whose tokens live for so long.
func NewIssuer(t testing.TB, lifetime time.Duration) *Issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &Issuer{key: key, lifetime: lifetime, KeyFile: filepath.Join(t.TempDir(), "jwks.json")}
	keys := map[string]any{"keys": []map[string]string{{
		"kty": "RSA", "kid": "test", "use": "sig", "alg": "RS256",
		"n": base64.RawURLEncoding.EncodeToString(key.N.Bytes()),
		"e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(key.E)).Bytes()),
	}}}
	text, err := json.Marshal(keys)
	if err == nil {
		err = os.WriteFile(i.KeyFile, text, 0o644)
	}
	if err == nil {
		i.address, err = freeAddr()
	}
	if err != nil {
		t.Fatal(err)
	}
	i.TokenURL = "http://" + i.address + "/token"
	i.Start(t)
	t.Cleanup(i.Stop)
	return i
}

// Start lets the token endpoint answer, on the same address as ever.
func (i *Issuer) Start(t testing.TB) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", i.address)
	if err != nil {
		t.Fatalf("start the token endpoint: %v", err)
	}
	server := &http.Server{Handler: http.HandlerFunc(i.serve), ReadHeaderTimeout: time.Minute}
	i.mu.Lock()
	i.server = server
	i.mu.Unlock()
	go func() { _ = server.Serve(listener) }()
}

// Stop makes the token endpoint refuse connections, and ends those that are open.
func (i *Issuer) Stop() {
	i.mu.Lock()
	server := i.server
	i.server = nil
	i.mu.Unlock()
	if server != nil {
		_ = server.Close()
	}
}

// Answer makes the endpoint answer so, instead of by tokens; nil: by tokens again.
func (i *Issuer) Answer(f func(w http.ResponseWriter, r *http.Request)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.answer = f
}

// Hang is an answer that never comes.
func Hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // before, the server does not notice that the client has gone
	<-r.Context().Done()
}

// Deny is the answer to a wrong secret, of a server that repeats it.
func Deny(w http.ResponseWriter, r *http.Request) {
	_, secret, inHeader := r.BasicAuth()
	if !inHeader { // clients try both ways
		secret = r.PostFormValue("client_secret")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusUnauthorized)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": "invalid_client", "error_description": "not " + secret})
}

// Issued is how many tokens the endpoint has issued.
func (i *Issuer) Issued() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.issued
}

// Rotations is how often tokens were asked for; several connections ask at about the same time.
func (i *Issuer) Rotations() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.bursts
}

func (i *Issuer) serve(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	answer, lifetime := i.answer, i.lifetime
	i.mu.Unlock()
	client, secret, _ := r.BasicAuth()
	switch {
	case answer != nil:
		answer(w, r)
	case client != IssuerClient || secret != IssuerSecret || r.PostFormValue("grant_type") != "client_credentials":
		Deny(w, r)
	default:
		i.mu.Lock()
		i.issued++
		if time.Since(i.last) > lifetime/4 {
			i.bursts, i.last = i.bursts+1, time.Now()
		}
		i.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		claims := map[string]any{"aud": r.PostFormValue("audience")}
		if scope := r.PostFormValue("scope"); scope != "" {
			claims["scope"] = scope
		}
		token := i.sign(lifetime, claims)
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": token, "token_type": "Bearer",
			"expires_in": int(lifetime.Seconds())})
	}
}

// Token is one that lives for so long from now on, or ended so long ago, for the audience.
func (i *Issuer) Token(lifetime time.Duration, audience string) string {
	return i.sign(lifetime, map[string]any{"aud": audience})
}

// sign makes a JWT (RFC 7519) of the claims that every token has and those given.
func (i *Issuer) sign(lifetime time.Duration, more map[string]any) string {
	now := float64(time.Now().UnixMilli()) / 1000
	claims := map[string]any{"iss": "https://issuer.test", "sub": IssuerClient, "iat": now - max(0, -2*lifetime.Seconds()),
		"exp": now + lifetime.Seconds()}
	maps.Copy(claims, more)
	body, err := json.Marshal(claims)
	if err != nil {
		panic(err) // texts and numbers
	}
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"alg":"RS256","typ":"JWT","kid":"test"}`)) + "." + encode(body)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, sum[:])
	if err != nil {
		panic(err)
	}
	return text + "." + encode(signature)
}

// BearerListener is a listener that takes this issuer's tokens and limits sessions to longest; 0: to their
// token. A cluster that has it needs the arguments of Java, too.
func (i *Issuer) BearerListener(name string, longest time.Duration) Listener {
	settings := map[string]string{
		"sasl.enabled.mechanisms": "OAUTHBEARER",
		"oauthbearer.sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule " +
			"required;",
		"oauthbearer.sasl.server.callback.handler.class": "org.apache.kafka.common.security.oauthbearer." +
			"OAuthBearerValidatorCallbackHandler",
		"sasl.oauthbearer.jwks.endpoint.url":  "file://" + i.KeyFile,
		"sasl.oauthbearer.expected.audience":  IssuerAudience,
		"sasl.oauthbearer.expected.issuer":    "https://issuer.test",
		"sasl.oauthbearer.clock.skew.seconds": "0",
	}
	if longest > 0 {
		settings["oauthbearer.connections.max.reauth.ms"] = fmt.Sprint(longest.Milliseconds())
	}
	return Listener{Name: name, Protocol: "SASL_PLAINTEXT", Settings: settings}
}

// Java is the arguments without which a broker reads no key of the issuer's.
func (i *Issuer) Java() []string {
	return []string{
		"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://" + i.KeyFile,
		"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files=" + i.KeyFile,
	}
}
