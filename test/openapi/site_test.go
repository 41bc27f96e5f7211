package openapi

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/internal/web"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

const secret = "a-token-of-the-test"

// site is a relay on a database and a stand-in broker of its own.
type site struct {
	t     *testing.T
	pg    *harness.PG
	relay *relay.Relay
}

// newSite makes a relay, which does not run yet, and what it needs.
func newSite(t *testing.T) (s *site, run func()) {
	t.Helper()
	s = &site{t: t, pg: harness.Postgres(t)}
	broker, err := embedded.StartFakeKafka(embedded.FakeKafkaConfig{Topics: map[string]int32{"outbox.event.order": 3}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { broker.Close() })
	c := config.Default()
	c.Service = "shop"
	c.Postgres.URL, c.Postgres.Slot, c.Postgres.Publication = s.pg.URL, s.pg.Database, s.pg.Database
	c.Outbox.Columns.Headers = "headers"
	tables, err := store.Open(t.Context(), relay.StoreConfig(c))
	if err != nil {
		t.Fatal(err)
	}
	defer tables.Close()
	if err := tables.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	driver, err := kafka.New(kafka.Config{Brokers: broker.Addresses()})
	if err != nil {
		t.Fatal(err)
	}
	s.relay, err = relay.New(c, driver, relay.WithLogger(zerolog.Nop()), relay.WithVersion("1.2.3"))
	if err != nil {
		t.Fatal(err)
	}
	started := false
	t.Cleanup(func() {
		if !started { // Run closes it otherwise
			_ = driver.Close()
		}
	})
	return s, func() {
		started = true
		ctx, cancel := context.WithCancel(context.Background())
		end := make(chan error, 1)
		go func() { end <- s.relay.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-end; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

// listen opens one more listener on the relay, and gives its URL on this machine.
func (s *site) listen(c web.Config) string {
	s.t.Helper()
	c.Logger = zerolog.Nop()
	server, err := web.Listen(c, s.relay)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := server.Close(); err != nil {
			s.t.Errorf("close the listener: %v", err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return "http://127.0.0.1" + server.Address()[strings.LastIndexByte(server.Address(), ':'):]
}

func tokenFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// ask sends a request, and gives both with bodies that can be read again.
func ask(t *testing.T, method, url, body string, headers map[string]string) (*http.Request, *http.Response, string) {
	t.Helper()
	send := func() *http.Request {
		request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range headers {
			request.Header.Set(name, value)
		}
		return request
	}
	response, err := http.DefaultClient.Do(send())
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer func() { _ = response.Body.Close() }()
	if strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		response.Body = http.NoBody // it does not end
		return send(), response, ""
	}
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	response.Body = io.NopCloser(bytes.NewReader(answer))
	return send(), response, string(answer)
}

// wait waits until the path answers with the code.
func wait(t *testing.T, url string, code int) {
	t.Helper()
	harness.Eventually(t, 30*time.Second, url+" answers", func(context.Context) string {
		if _, response, body := ask(t, http.MethodGet, url, "", nil); response.StatusCode != code {
			return body
		}
		return ""
	})
}
