package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/access/certs"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/webhook"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// sent returns the request that the receiver gets for a record.
func sent(t *testing.T, change func(*webhook.Config), r *sink.Record) harness.Delivery {
	t.Helper()
	b := newBed(t, nil)
	f := sinktest.NewFlow(t, b.driver(t, change))
	r.Topic = "orders"
	f.Send([]*sink.Record{r})
	found := b.Deliveries("")
	if len(found) != 1 {
		t.Fatalf("got %d deliveries, want 1", len(found))
	}
	return found[0]
}

func withHeaders(value string, pairs ...string) *sink.Record {
	r := &sink.Record{Key: []byte("a b/%"), Value: []byte(value), Cost: 100}
	for i := 0; i < len(pairs); i += 2 {
		r.Headers.Add(pairs[i], []byte(pairs[i+1]))
	}
	return r
}

// Breaks it catches: a name that servers drop; a row that chooses how HTTP works, who signs, or whose credentials are
// sent; an id that breaks what is signed; a key that cannot be read back. Seen to fail with names left as they are,
// with the list of our own names empty, and with ids not encoded.
func TestHeadersAreOursAndHTTPs(t *testing.T) {
	d := sent(t, nil, withHeaders("{}", "id", `7."\ ü`, "event_type", "made", "traceparent", "00-1-2-01", "Host", "evil",
		"content-length", "1", "Transfer-Encoding", "chunked", "Connection", "close", "Webhook-Signature", "v1,AAAA",
		"webhook_id", "1", "Authorization", "Bearer x", "Content-Type", "application/xml", "note", "grüße"))
	for name, want := range map[string]string{
		"Webhook-Id": "7%2E%22%5C%20%C3%BC", "Idempotency-Key": `"7%2E%22%5C%20%C3%BC"`, "Id": `7."\ ü`,
		"Event-Type": "made", "Traceparent": "00-1-2-01", "Webhook-Signature": "", "Authorization": "",
		"Content-Type": "application/xml", "Note": "grüße", "X-Outbox-Key": "a%20b/%25", "User-Agent": "cdc-relay",
	} {
		if got := strings.Join(d.Header.Values(name), "; "); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if string(d.Body) != "{}" {
		t.Errorf("body: got %q", d.Body)
	}
	if d := sent(t, nil, withHeaders("{}")); d.Header.Get("Content-Type") != "application/json" ||
		len(d.Header.Get("Webhook-Id")) != 32 {
		t.Errorf("without headers: got %v, want the type of the configuration, and an id", d.Header)
	}
	tombstone := withHeaders("")
	tombstone.Value = nil
	if d := sent(t, nil, tombstone); d.Header.Get("X-Outbox-Tombstone") != "true" || d.Header.Get("Content-Type") != "" {
		t.Errorf("tombstone: got %v, want it marked, and without a type", d.Header)
	}
}

// Breaks it catches: a row that says for whom a proxy speaks, or which session or method a request is of, in whatever
// spelling; a name with an underscore that does not arrive with a dash. Seen to fail with the list of ambient names
// empty, with the list of their prefixes not looked at, with names in their own capitals, and with underscores kept.
func TestAmbientHeadersAreNoRows(t *testing.T) {
	d := sent(t, nil, withHeaders("{}", "id", "7", "COOKIE", "a=b", "X_Forwarded_For", "10.0.0.1",
		"X-Forwarded-Anything", "1",
		"X-HTTP-Method-Override", "DELETE", "Forwarded", "for=x", "X-Real-IP", "10.0.0.1", "If-Match", "*", "Sec-Fetch-Site",
		"none", "Accept", "text/html", "X-Original-URL", "/admin", "Tenant_ID", "t1", "X-Amzn-Oidc-Identity", "root",
		"X_MS_Client_Principal", "e30=", "X-Goog-Authenticated-User-Email", "a@b", "SSL-Client-Verify", "SUCCESS",
		"x-middleware-subrequest", "middleware", "X-Amzn-Trace-Id", "Root=1"))
	for _, name := range []string{"Cookie", "X-Forwarded-For", "X-Forwarded-Anything", "X-Http-Method-Override",
		"Forwarded",
		"X-Real-Ip", "If-Match", "Sec-Fetch-Site", "Accept", "X-Original-Url", "X-Amzn-Oidc-Identity",
		"X-Ms-Client-Principal", "X-Goog-Authenticated-User-Email", "Ssl-Client-Verify", "X-Middleware-Subrequest"} {
		if got := d.Header.Values(name); len(got) > 0 {
			t.Errorf("%s: got %q, want none", name, got)
		}
	}
	for name, want := range map[string]string{"Tenant-Id": "t1", "X-Amzn-Trace-Id": "Root=1"} {
		if got := d.Header.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s: got %q, want %s", name, got, want)
		}
	}
}

// Breaks it catches: a header that smuggles another one in; a header that the transport refuses forever. Seen to fail
// with names and values not looked at. White space at the ends of a value would be cut off, and of two names that
// servers do not tell apart no one knows which one counts. Seen to fail with each of the two not looked at.
func TestWhatNoHeaderCanCarryIsTheEventsFault(t *testing.T) {
	b := newBed(t, nil)
	f := sinktest.NewFlow(t, b.driver(t, nil))
	for _, pair := range [][2]string{
		{"a b", "1"}, {"", "1"}, {"ü", "1"}, {"a", "1\r\nb: 2"}, {"a", "\x00"}, {"a", "\x7f"},
		{"a", " 1"}, {"a", "1 "}, {"a", "\t1"}, {"a", " "}, {"id", "trail "}, {"Once_More", "2"},
	} {
		r := withHeaders("{}", "once-more", "1", pair[0], pair[1])
		r.Topic, r.Key = "orders", nil
		submit(t, f, r)
		collect(t, f, 1)
		if r.Result != sink.Rejected || r.Reason.Code != "INVALID_HEADER" || r.Reason.Class != outbox.Permanent {
			t.Errorf("%q: got result %d, reason %v; want it rejected", pair, r.Result, r.Reason)
		}
	}
	if found := b.Deliveries(""); len(found) > 0 {
		t.Errorf("got %d deliveries, want none", len(found))
	}
}

// verify does what the specification says, apart from the driver's code.
func verify(t *testing.T, d harness.Delivery, secret string) bool {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "%s.%s.%s", d.Header.Get("Webhook-Id"), d.Header.Get("Webhook-Timestamp"), d.Body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	for one := range strings.SplitSeq(d.Header.Get("Webhook-Signature"), " ") {
		if one == want {
			return true
		}
	}
	return false
}

func secretOf(letter string) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(letter, 32)))
}

// Breaks it catches: a signature that no receiver can verify; a rotation that needs a restart, or in which one of the
// two secrets does not sign; an attempt with another time; one topic's secret used for another. Seen to fail with the
// file read once, with the first secret alone, with the topic left in the file's name, and with half the time.
func TestReceiversVerifyThroughARotation(t *testing.T) {
	b := newBed(t, nil)
	dir := t.TempDir()
	write := func(topic string, secrets ...string) {
		text := strings.Join(secrets, "\n") + "\n"
		if err := os.WriteFile(filepath.Join(dir, topic+".secret"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	older, newer, other := secretOf("o"), secretOf("n"), secretOf("x")
	write("orders", older)
	write("invoices", other)
	f := sinktest.NewFlow(t, b.driver(t, func(c *webhook.Config) { c.SecretFile = filepath.Join(dir, "{topic}.secret") }))
	next := 0
	last := func(topic string) harness.Delivery {
		f.Send(sinktest.Events(topic, next, 1))
		next++
		all := b.Deliveries("/hooks/" + topic)
		return all[len(all)-1]
	}
	first := last("orders")
	if !verify(t, first, older) || verify(t, first, other) {
		t.Errorf("got signature %q, want it by the topic's secret", first.Header.Get("Webhook-Signature"))
	}
	stamp, err := strconv.ParseInt(first.Header.Get("Webhook-Timestamp"), 10, 64)
	if at := time.Unix(stamp, 0); err != nil || first.At.Sub(at).Abs() > time.Minute {
		t.Errorf("got the time %v, %v; want that of the attempt, %v", at, err, first.At)
	}
	if d := last("invoices"); !verify(t, d, other) {
		t.Errorf("got signature %q, want it by the other topic's secret", d.Header.Get("Webhook-Signature"))
	}
	write("orders", newer, older)
	harness.Eventually(t, patience, "both secrets sign", func(context.Context) string {
		if d := last("orders"); !verify(t, d, older) || !verify(t, d, newer) {
			return d.Header.Get("Webhook-Signature")
		}
		return ""
	})
	if err := os.Remove(filepath.Join(dir, "orders.secret")); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, patience, "the engine is blocked", func(context.Context) string {
		submit(t, f, sinktest.Events("orders", next, 1)...)
		next++
		if s := f.Status(); s.State != sink.Blocked || !strings.Contains(s.Reason, "webhook secret") {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
}

// secured is a receiver by TLS, of a certificate for a host, that wants a client's certificate of the authority or
// none.
func secured(t *testing.T, c harness.Certificate, clients *harness.Authority) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) }))
	s.Config.ErrorLog = nil
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	if clients != nil {
		pem, err := os.ReadFile(clients.File)
		if err != nil {
			t.Fatal(err)
		}
		s.TLS.ClientCAs, s.TLS.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		s.TLS.ClientCAs.AppendCertsFromPEM(pem)
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return "https://127.0.0.1:" + port
}

// Breaks it catches: a certificate that no one verifies; one of ours that is not shown; an endpoint with a wrong
// certificate taken for one that is away, for which nothing is parked. Seen to fail with verification off, and without
// the client's certificate.
func TestCertificatesAreVerified(t *testing.T) {
	b := newBed(t, nil)
	authority, stranger := harness.NewAuthority(t, "authority"), harness.NewAuthority(t, "stranger")
	tomorrow := time.Now().Add(24 * time.Hour)
	good := authority.Issue(t, "good", tomorrow, "127.0.0.1")
	client := authority.Issue(t, "client", tomorrow)
	for _, c := range []struct {
		name, url string
		tls       certs.Files
		well      bool
	}{
		{"trusted", secured(t, good, nil), certs.Files{CAFile: authority.File}, true},
		{"not of the system's", secured(t, good, nil), certs.Files{}, false},
		{"of another authority", secured(t, good, nil), certs.Files{CAFile: stranger.File}, false},
		{"of another host", secured(t, authority.Issue(t, "host", tomorrow, "example.org"), nil),
			certs.Files{CAFile: authority.File}, false},
		{"expired", secured(t, authority.Issue(t, "old", time.Now().Add(-time.Hour), "127.0.0.1"), nil),
			certs.Files{CAFile: authority.File}, false},
		{"both sides", secured(t, good, authority),
			certs.Files{CAFile: authority.File, CertFile: client.CertFile, KeyFile: client.KeyFile}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := b.driver(t, func(config *webhook.Config) { config.URL, config.TLS = c.url, c.tls })
			f := sinktest.NewFlow(t, d)
			began := time.Now()
			submit(t, f, sinktest.Events("orders", 0, 1)...)
			if c.well {
				collect(t, f, 1)
				return
			}
			if reason := awaitTrouble(t, f, sink.TopicTrouble); !strings.Contains(reason, "certificate") {
				t.Errorf("reason: got %q", reason)
			}
			if !d.AnsweredSince(began) {
				t.Error("AnsweredSince: got false, want true: it is there")
			}
		})
	}
}

// Breaks it catches: a password of a URL that is not used, or that is shown. Seen to fail with the user left out of
// the request, and with the URL in the error.
func TestAPasswordInTheURLIsUsedAndNotShown(t *testing.T) {
	b := newBed(t, func(w http.ResponseWriter, d harness.Delivery) {
		if d.Header.Get("Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte("relay:hunter2")) {
			w.WriteHeader(http.StatusUnauthorized)
		} else {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	f := sinktest.NewFlow(t, b.driver(t, func(c *webhook.Config) {
		c.URL = "http://relay:hunter2@" + b.proxy.Addr + "/hunter2?token=hunter2"
	}))
	submit(t, f, sinktest.Events("orders", 0, 1)...)
	why := collect(t, f, 1)[0].Reason
	if why == nil || why.Code != "HTTP_400" || strings.Contains(why.Text, "hunter2") {
		t.Errorf("got reason %v, want 400, and no password in it", why)
	}
	_ = b.proxy.Close()
	submit(t, f, sinktest.Events("orders", 1, 1)...)
	if reason := awaitTrouble(t, f, sink.ClusterTrouble); strings.Contains(reason, "hunter2") {
		t.Errorf("the error shows a secret: %s", reason)
	}
	for _, url := range []string{"http://relay:hunter2@[::1", "ftp://relay:hunter2@h"} {
		if _, err := webhook.New(webhook.Config{URL: url}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got error %v, want one without the password", url, err)
		}
	}
}

// Breaks it catches: an attribute under another name than the HTTP binding's, or with characters that it forbids there
// (CloudEvents 1.0.2, HTTP Protocol Binding, section 3.1.3). Seen to fail with the names of Kafka's binding, and with
// values not encoded.
func TestCloudEventsHaveTheNamesOfTheHTTPBinding(t *testing.T) {
	r := withHeaders(`{"n": 1}`, "ce_id", "7", "ce_type", "order placed", "ce_source", "/cdc-relay/a/b", "ce_specversion",
		"1.0", "ce_subject", `größe "1" 100%`, "ce_time", "2026-11-21T16:36:32.5Z", "ce_aggregatetype", "order",
		"content-type", "application/json")
	d := sent(t, func(c *webhook.Config) { c.IDHeader = "ce_id" }, r)
	for name, want := range map[string]string{
		"Ce-Id": "7", "Webhook-Id": "7", "Ce-Type": "order%20placed", "Ce-Source": "/cdc-relay/a/b", "Ce-Specversion": "1.0",
		"Ce-Subject": "gr%C3%B6%C3%9Fe%20%221%22%20100%25", "Ce-Time": "2026-11-21T16:36:32.5Z", "Ce-Aggregatetype": "order",
		"Content-Type": "application/json",
	} {
		if got := strings.Join(d.Header.Values(name), "; "); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if string(d.Body) != `{"n": 1}` {
		t.Errorf("data: got %q", d.Body)
	}
}
