package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
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

// site is a relay on a database and a stand-in broker of its own, and its listener.
type site struct {
	t      *testing.T
	pg     *harness.PG
	broker *embedded.FakeKafka
	relay  *relay.Relay
	url    string
}

var topics = map[string]int32{"outbox.event.order": 3}

// newSite migrates the database, with tables of the test's own if it gives some, and listens; run starts the relay.
func newSite(t *testing.T, tables ...string) (s *site, run func()) {
	t.Helper()
	return newSiteOf(t, "", tables...)
}

// newSiteOf is newSite with outbox.tables, if pattern is not empty.
func newSiteOf(t *testing.T, pattern string, tables ...string) (s *site, run func()) {
	t.Helper()
	s = &site{t: t, pg: harness.Postgres(t)}
	for _, table := range tables {
		s.pg.Exec(t, table)
	}
	var err error
	if s.broker, err = embedded.StartFakeKafka(embedded.FakeKafkaConfig{Topics: topics}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.broker.Close() })
	c := config.Default()
	c.Service = "shop"
	c.Postgres.URL, c.Postgres.Slot, c.Postgres.Publication = s.pg.URL, s.pg.Database, s.pg.Database
	c.Outbox.Columns.Headers = "headers"
	memory, err := store.Open(t.Context(), relay.StoreConfig(c))
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	if err := memory.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Outbox.Tables = pattern
	driver, err := kafka.New(kafka.Config{Brokers: s.broker.Addresses()})
	if err != nil {
		t.Fatal(err)
	}
	s.relay, err = relay.New(c, driver, relay.WithLogger(zerolog.Nop()), relay.WithVersion("1.2.3"))
	if err != nil {
		t.Fatal(err)
	}
	server, err := web.Listen(web.Config{Address: "127.0.0.1:0", Logger: zerolog.Nop()}, s.relay)
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + server.Address()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("close the listener: %v", err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
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

// ask returns the answer's code and body.
func (s *site) ask(method, path string) (int, string, http.Header) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return response.StatusCode, string(body), response.Header
}

type readiness struct {
	Ready   bool
	Role    string
	Reasons []string
}

// wantReady waits until /readyz answers the code with a reason that holds the text, and checks its other names.
func (s *site) wantReady(code int, reason string) {
	s.t.Helper()
	harness.Eventually(s.t, 30*time.Second, fmt.Sprintf("/readyz answers %d %s", code, reason),
		func(context.Context) string {
			got, body, _ := s.ask(http.MethodGet, "/readyz")
			var r readiness
			if err := json.Unmarshal([]byte(body), &r); err != nil {
				s.t.Fatalf("/readyz: %v: %s", err, body)
			}
			if got != code || r.Ready != (code == http.StatusOK) || r.Role == "" || r.Reasons == nil ||
				!strings.Contains(strings.Join(r.Reasons, "\n"), reason) {
				return fmt.Sprintf("%d %s", got, body)
			}
			if code != http.StatusOK && len(r.Reasons) == 0 {
				s.t.Errorf("/readyz: got %d without a reason", got)
			}
			return ""
		})
	for _, path := range []string{"/healthz", "/health"} {
		if got, body, _ := s.ask(http.MethodGet, path); got != code {
			s.t.Errorf("%s: got %d %s, want %d as /readyz", path, got, body, code)
		}
	}
	if got, body, _ := s.ask(http.MethodGet, "/livez"); got != http.StatusOK || !strings.Contains(body, `"live": true`) {
		s.t.Errorf("/livez: got %d %s, want 200: an orchestrator must not restart what waits", got, body)
	}
}

const insertOrder = `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, headers)
	VALUES ('order', 'a', 'made', '{}', '%s')`

var haltedNow = regexp.MustCompile(`(?m)^cdc_relay_halted\{code="not_initialised"[^}]*\} 1$`)

// Breaks it catches: a relay that is ready before it streams, while it is halted or while nothing can be published; one
// that says no reason, or stays unready when the cause is gone; a liveness that follows readiness.
func TestReadyExactlyWhileEventsCanFlow(t *testing.T) {
	t.Parallel()
	s, run := newSite(t)
	port := s.broker.Port()
	s.broker.Close()
	s.wantReady(http.StatusServiceUnavailable, "starting")

	s.pg.Exec(t, "ALTER TABLE outbox_events RENAME TO elsewhere")
	run()
	s.wantReady(http.StatusServiceUnavailable, "halted (not_initialised)")
	if _, body, _ := s.ask(http.MethodGet, "/metrics"); !haltedNow.MatchString(body) {
		t.Error("/metrics: got no cdc_relay_halted of 1 with the halt's code")
	}
	var st relay.Status
	if code, body, _ := s.ask(http.MethodGet, "/api/v1/status"); code != http.StatusOK ||
		json.Unmarshal([]byte(body), &st) != nil ||
		st.Halt == nil || st.Halt.Code != "not_initialised" || st.Halt.Remedy == "" || st.Version != "1.2.3" ||
		st.Service != "shop" {
		t.Errorf("/api/v1/status while halted: got %d %s, want the halt with its remedy", code, body)
	}
	s.pg.Exec(t, "ALTER TABLE elsewhere RENAME TO outbox_events")
	s.wantReady(http.StatusOK, "")
	if _, body, _ := s.ask(http.MethodGet, "/metrics"); haltedNow.MatchString(body) {
		t.Error("/metrics: got cdc_relay_halted of 1 after the halt ended")
	}

	s.pg.Exec(t, fmt.Sprintf(insertOrder, "{}"))
	s.wantReady(http.StatusServiceUnavailable, "broker")
	var err error
	if s.broker, err = embedded.StartFakeKafka(embedded.FakeKafkaConfig{Port: port, Topics: topics}); err != nil {
		t.Fatal(err)
	}
	s.wantReady(http.StatusOK, "")
	st = relay.Status{}
	if code, body, _ := s.ask(http.MethodGet, "/api/v1/status"); code != http.StatusOK ||
		json.Unmarshal([]byte(body), &st) != nil ||
		st.Role != relay.RoleActive || !st.Ready || st.Halt != nil || st.Epoch == nil || *st.Epoch != 1 || st.Broker != "ok" {
		t.Errorf("/api/v1/status: got %d %s, want active, ready, epoch 1", code, body)
	}

	harness.Eventually(t, 30*time.Second, "the event is published", func(context.Context) string {
		if st := s.status(); st["in_flight_events"] != 0.0 || st["last_published_at"] == nil {
			return fmt.Sprint(st)
		}
		return ""
	})
	s.broker.Close() // nothing waits for it now
	s.wantReady(http.StatusServiceUnavailable, "broker unreachable")
	if _, metrics, _ := s.ask(http.MethodGet, "/metrics"); !strings.Contains(metrics,
		`outbox_broker_available{service="shop"} 0`) {
		t.Error("the broker is away: want outbox_broker_available 0")
	}
	if s.broker, err = embedded.StartFakeKafka(embedded.FakeKafkaConfig{Port: port, Topics: topics}); err != nil {
		t.Fatal(err)
	}
	s.wantReady(http.StatusOK, "")
}

// contract are the metrics that dashboards and alert rules rely on, with their types.
var contract = map[string]string{
	"outbox_publish_attempts_total": "counter", "outbox_published_total": "counter", "outbox_retry_total": "counter",
	"outbox_failed_permanent_total": "counter", "outbox_backlog_gauge": "gauge",
	"outbox_oldest_pending_age_seconds": "gauge",
	"outbox_unclean_starts_total":       "counter", "outbox_possible_duplicates_total": "counter",
	"outbox_publish_latency_seconds": "histogram", "outbox_relay_latency_seconds": "histogram",
	"outbox_settle_seconds": "histogram", "outbox_settle_batch_size": "histogram",
	"outbox_duplicates_skipped_total": "counter",
	"outbox_mirror_lag_events":        "gauge", "outbox_mirror_lag_seconds": "gauge", "outbox_marked_total": "counter",
	"outbox_in_flight_events": "gauge", "outbox_in_flight_bytes": "gauge",
	"outbox_last_published_timestamp_seconds": "gauge", "outbox_alarms_open": "gauge", "outbox_degraded": "gauge",
	"outbox_broker_available":        "gauge",
	"cdc_oldest_transaction_seconds": "gauge",
	"outbox_unrecorded_events":       "gauge",
	"cdc_replication_lag_bytes":      "gauge", "cdc_replication_lag_seconds": "gauge",
	"cdc_slot_retained_wal_bytes": "gauge",
	"cdc_slot_safe_wal_bytes":     "gauge", "cdc_slot_status": "gauge", "cdc_received_lsn": "gauge",
	"cdc_confirmed_lsn":      "gauge",
	"cdc_transactions_total": "counter", "cdc_events_received_total": "counter", "cdc_stream_restarts_total": "counter",
	"outbox_parked_keys": "gauge", "outbox_parked_events": "gauge", "cdc_relay_role": "gauge", "cdc_relay_halted": "gauge",
	"cdc_relay_build_info": "gauge",
	"outbox_dlq_events":    "gauge", "outbox_reconciled_total": "counter", "outbox_interleaved_total": "counter",
	"outbox_audited_until_seconds": "gauge",
	"cdc_slot_recreations_total":   "counter",
	"cdc_walsender_state":          "gauge", "cdc_walsender_behind_bytes": "gauge",
	"cdc_walsender_behind_seconds": "gauge",
	"cdc_slot_spilled_bytes_total": "counter", "cdc_slot_spilled_transactions_total": "counter",
	"kafka_produce_requests_total": "counter", "kafka_produce_batch_records": "histogram",
	"kafka_produce_seconds": "histogram",
}

// beside are further ones of ours.
var beside = []string{"outbox_spooled_events", "outbox_spooling",
	"outbox_headers_shadowed_total", "outbox_dlq_uncopied_total", "kafka_alarms_total"}

var sample = regexp.MustCompile(`^([a-z_]+)\{([^}]*)\} `)

// Breaks it catches: a metric that is renamed, changes its type, loses the label service or is missing although it is
// promised; a new one that no one wrote down; a label whose values come from event data.
func TestMetricsAreThoseThatDashboardsRelyOn(t *testing.T) {
	t.Parallel()
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	s.pg.Exec(t, fmt.Sprintf(insertOrder, "{}")+";"+fmt.Sprintf(insertOrder, "[]"))
	s.pg.Exec(t, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '"+s.pg.Database+"'")
	var body string
	harness.Eventually(t, 30*time.Second, "every metric has happened", func(context.Context) string {
		_, body, _ = s.ask(http.MethodGet, "/metrics")
		for _, want := range []string{"outbox_failed_permanent_total{", "outbox_published_total{",
			"cdc_stream_restarts_total{", `cdc_slot_status{`, "outbox_mirror_lag_events{", "outbox_dlq_events{",
			"cdc_oldest_transaction_seconds{", "cdc_walsender_state{"} {
			if !strings.Contains(body, "\n"+want) {
				return "no " + want
			}
		}
		return ""
	})
	types := map[string]string{}
	for line := range strings.SplitSeq(body, "\n") {
		if words := strings.Fields(line); len(words) == 4 && words[1] == "TYPE" {
			types[words[2]] = words[3]
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil || !ours(m[1]) {
			continue
		}
		if !strings.Contains(m[2], `service="shop"`) {
			t.Errorf("%s: no label service: {%s}", m[1], m[2])
		}
		for pair := range strings.SplitSeq(m[2], ",") {
			label, _, _ := strings.Cut(pair, "=")
			if !slices.Contains([]string{"service", "topic", "class", "by", "reason", "status", "role", "code", "version", "go",
				"le", "kind", "state"}, label) {
				t.Errorf("%s: label %q is none of those that may be", m[1], label)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(contract)) {
		if types[name] != contract[name] {
			t.Errorf("%s: got type %q, want %s", name, types[name], contract[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(types)) {
		if _, promised := contract[name]; ours(name) && !promised && !slices.Contains(beside, name) {
			t.Errorf("%s: is not in the lists of this test", name)
		}
	}
}

func ours(name string) bool {
	return strings.HasPrefix(name, "outbox_") || strings.HasPrefix(name, "cdc_") || strings.HasPrefix(name, "kafka_")
}

// Breaks it catches: a path that answers what no one asked, a method that could change something, answers that a
// browser may guess at or keep.
func TestOnlyKnownPathsAndReadingMethods(t *testing.T) {
	t.Parallel()
	s, _ := newSite(t)
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/livez", 200}, {"HEAD", "/livez", 200}, {"GET", "/metrics", 200}, {"GET", "/api/v1/status", 200},
		{"GET", "/readyz", 503},
		{"GET", "/nothing", 404}, {"GET", "/api/v1/nothing", 404}, {"GET", "/livez/", 404}, {"GET", "/debug/pprof/", 404},
		{"GET", "/metrics/x", 404},
		{"POST", "/livez", 405}, {"POST", "/readyz", 405}, {"POST", "/healthz", 405}, {"POST", "/health", 405},
		{"POST", "/metrics", 405},
		{"POST", "/api/v1/status", 405}, {"PUT", "/api/v1/status", 405}, {"DELETE", "/api/v1/status", 405},
		{"POST", "/nothing", 404},
	} {
		got, body, header := s.ask(c.method, c.path)
		if got != c.want {
			t.Errorf("%s %s: got %d %.80s, want %d", c.method, c.path, got, body, c.want)
		}
		if header.Get("X-Content-Type-Options") != "nosniff" ||
			!strings.Contains(header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s %s: got headers %v, want nosniff and a closed policy", c.method, c.path, header)
		}
		if got == 200 && c.path != "/metrics" && header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s %s: got Cache-Control %q, want no-store", c.method, c.path, header.Get("Cache-Control"))
		}
	}
}

// Break it catches: an address that is taken reported without the key that chooses another.
func TestTakenAddressNamesItsKey(t *testing.T) {
	t.Parallel()
	s, _ := newSite(t)
	taken := strings.TrimPrefix(s.url, "http://")
	server, err := web.Listen(web.Config{Address: taken}, s.relay)
	if err == nil {
		_ = server.Close()
		t.Fatalf("listen on %s twice: got no error", taken)
	}
	if !strings.Contains(err.Error(), "http.listen") || !strings.Contains(err.Error(), taken) {
		t.Errorf("listen on %s twice: got %q, want http.listen and the address in it", taken, err)
	}
}
