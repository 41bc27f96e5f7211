package webhook_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/access/certs"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/webhook"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// take takes over the connection of a request.
func take(t *testing.T, w http.ResponseWriter) net.Conn {
	t.Helper()
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		t.Error(err)
		return nil
	}
	return c
}

// The endpoint switches protocols and says nothing more. Breaks it catches: a lane, and the relay's stop, that wait
// forever for the end of a body that has none. Seen to fail with that body read.
func TestSwitchedProtocolsAreTheEndpointsTrouble(t *testing.T) {
	var mu sync.Mutex
	var open []net.Conn
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c := take(t, w)
		mu.Lock()
		defer mu.Unlock()
		open = append(open, c)
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	}))
	t.Cleanup(s.Close)
	f := sinktest.NewFlow(t, newBed(t, nil).driver(t, func(c *webhook.Config) { c.URL = s.URL }))
	t.Cleanup(func() { // before the flow ends, so that a failure of this test is no hang
		mu.Lock()
		defer mu.Unlock()
		for _, c := range open {
			_ = c.Close()
		}
	})
	submit(t, f, sinktest.Events("orders", 0, 1)...)
	if reason := awaitTrouble(t, f, sink.TopicTrouble); !strings.Contains(reason, "answered 101") {
		t.Errorf("reason: got %q", reason)
	}
}

// Breaks it catches: one endpoint that does not speak TLS, which stops all others; files of ours that cannot be read,
// which are all endpoints' trouble, taken for one endpoint's. Seen to fail with every error of package certs taken for
// our files', and with none.
func TestAnEndpointWithoutTLSStopsNoOther(t *testing.T) {
	b := newBed(t, nil)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	harness.CopyFile(t, ca, harness.NewAuthority(t, "authority").File)
	d := b.driver(t, func(c *webhook.Config) {
		c.Endpoints = map[string]string{"invoices": "https://" + b.Addr + "/in"}
		c.TLS = certs.Files{CAFile: ca, Names: certs.ByURL("endpoint", "webhook.tls", "webhook.url")}
	})
	f := sinktest.NewFlow(t, d)
	began := time.Now()
	submit(t, f, sinktest.Events("invoices", 0, 1)...)
	if reason := awaitTrouble(t, f, sink.TopicTrouble); !strings.Contains(reason, "does not speak TLS on this port") {
		t.Errorf("reason: got %q", reason)
	}
	if !d.AnsweredSince(began) {
		t.Error("AnsweredSince: got false, want true: it is there")
	}
	submit(t, f, sinktest.Events("orders", 0, 1)...)
	collect(t, f, 1)
	if s := f.Status(); s.State == sink.Blocked {
		t.Errorf("got the status %+v, want nothing blocked", s)
	}
	if err := os.Remove(ca); err != nil {
		t.Fatal(err)
	}
	if reason := awaitTrouble(t, f, sink.ConfigurationTrouble); !strings.Contains(reason, "webhook.tls.ca_file") {
		t.Errorf("reason without the file: got %q", reason)
	}
}

// A row has the header by which Go's transport sends a POST again, and the endpoint closes a connection that it has
// used before. Breaks it catches: a request that is sent again and not counted. Seen to fail with the name left as the
// row has it.
func TestARowsHeaderHasNothingSentAgainUncounted(t *testing.T) {
	var requests, named atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("X-Idempotency-Key") == "7" {
			named.Add(1)
		}
		if _, err := io.ReadAll(q.Body); err == nil && requests.Add(1) == 2 {
			_ = take(t, w).Close()
		}
	}))
	t.Cleanup(s.Close)
	d := newBed(t, nil).driver(t, func(c *webhook.Config) { c.URL, c.Lanes = s.URL, 1 })
	f := sinktest.NewFlow(t, d)
	for range 2 {
		r := withHeaders("{}", "X_Idempotency_Key", "7")
		r.Topic = "orders"
		submit(t, f, r)
		collect(t, f, 1)
	}
	if n := d.PossibleDuplicates(); n != 1 || requests.Load() != 3 || named.Load() != 3 {
		t.Errorf("got %d possible duplicates and %d requests, %d with the row's header; want 1, 3 and 3", n, requests.Load(),
			named.Load())
	}
}

// The endpoint takes connections and does not go on with TLS. Breaks it catches: a connect that takes too long told as
// an answer that does, for which a person raises the wrong bound. Seen to fail with one text for both, and with the
// request's own end not looked at.
func TestASlowConnectIsNoSlowAnswer(t *testing.T) {
	for timeout, want := range map[time.Duration]string{
		time.Minute: "no connection within 3s", 100 * time.Millisecond: "no connection within 100ms",
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			f := sinktest.NewFlow(t, newBed(t, nil).driver(t, func(c *webhook.Config) {
				c.URL, c.Timeout = "https://"+l.Addr().String(), timeout
			}))
			submit(t, f, sinktest.Events("orders", 0, 1)...)
			if reason := awaitTrouble(t, f, sink.ClusterTrouble); !strings.Contains(reason, want) ||
				strings.Contains(reason, "no answer") {
				t.Errorf("reason: got %q, want %q", reason, want)
			}
		})
	}
}
