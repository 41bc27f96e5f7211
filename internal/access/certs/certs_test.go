package certs_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/access/certs"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// picky is the TLS of a server that wants a certificate of the authority from clients.
func picky(t *testing.T, own harness.Certificate, clients *harness.Authority) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(own.CertFile, own.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(clients.File)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
}

// Breaks it catches: a server's refusal, which comes behind the handshake in TLS 1.3, told as an error of the network,
// whether it is met by reading or by writing. Seen to fail with an answer taken for given before the first byte, and,
// by TestSecuredRedis of test/logins, with the explanation on the outside of the error.
func TestRefusalsBehindTheHandshakeAreExplained(t *testing.T) {
	trusted := harness.NewAuthority(t, "trusted")
	l, err := tls.Listen("tcp", "127.0.0.1:0",
		picky(t, trusted.Issue(t, "server", time.Now().Add(time.Hour), "127.0.0.1"), trusted))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = c.Read(make([]byte, 1)); _ = c.Close() }()
		}
	}()
	f := certs.Files{CAFile: trusted.File, Names: certs.ByURL("server", "nats.tls", "nats.url")}
	for _, writes := range []bool{false, true} {
		inner, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conn, err := f.Secure(t.Context(), inner, "127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		for err == nil { // until the kernel sees that there is no reader any more
			if writes {
				_, err = conn.Write([]byte("x"))
			} else {
				_, err = conn.Read(make([]byte, 1))
			}
		}
		refused, is := errors.AsType[*certs.Error](err)
		if !is || !strings.Contains(refused.What, "no client certificate is configured") ||
			!strings.Contains(refused.Check, "nats.tls.cert_file") || !errors.Is(err, conn.Refused()) {
			t.Errorf("writes %t: got %v and refused %v, want that no client certificate is configured", writes, err,
				conn.Refused())
		}
		_ = conn.Close()
	}
}

// Breaks it catches: authorities and client certificates of HTTP that are read once. Seen to fail with the dialling of
// TLS left to the transport.
func TestRequestsReadRenewedFiles(t *testing.T) {
	trusted, other := harness.NewAuthority(t, "trusted"), harness.NewAuthority(t, "other")
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
	}))
	s.TLS = picky(t, trusted.Issue(t, "server", time.Now().Add(time.Hour), "127.0.0.1"), trusted)
	s.StartTLS()
	defer s.Close()
	dir := t.TempDir()
	f := certs.Files{CAFile: filepath.Join(dir, "ca.pem"), CertFile: filepath.Join(dir, "cert.pem"),
		KeyFile: filepath.Join(dir, "key.pem"), Names: certs.ByURL("endpoint", "webhook.tls", "webhook.url")}
	have := func(ca, client *harness.Authority) {
		c := client.Issue(t, "client", time.Now().Add(time.Hour))
		harness.CopyFile(t, f.CAFile, ca.File)
		harness.CopyFile(t, f.CertFile, c.CertFile)
		harness.CopyFile(t, f.KeyFile, c.KeyFile)
	}
	have(other, other)
	var transport http.Transport
	if err := f.Dress(&transport, time.Minute); err != nil {
		t.Fatal(err)
	}
	ask := func() error {
		q, err := http.NewRequestWithContext(context.Background(), http.MethodGet, s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := transport.RoundTrip(q)
		if err == nil {
			_ = answer.Body.Close()
		}
		return err
	}
	for _, c := range []struct {
		ca, client *harness.Authority
		want       string // in the error; empty: an answer
	}{{other, other, "webhook.tls.ca_file"}, {trusted, other, "webhook.tls.cert_file"}, {trusted, trusted, ""}} {
		have(c.ca, c.client)
		if err := ask(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want an error with %q", err, c.want)
		}
	}
	if err := os.WriteFile(f.CAFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (certs.Files{CAFile: f.CAFile, Names: f.Names}).Dress(&transport, time.Minute); err == nil ||
		!strings.Contains(err.Error(), f.CAFile+" holds no certificate") {
		t.Errorf("an empty file: got %v", err)
	}
}
