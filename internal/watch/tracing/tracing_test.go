package tracing

import (
	"bytes"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	spanID  = "b7ad6b7169203331"
	yes     = "00-" + traceID + "-" + spanID + "-01"
	no      = "00-" + traceID + "-" + spanID + "-00"
)

func start(t *testing.T, c Config) *Tracer {
	t.Helper()
	tr, err := New(t.Context(), c)
	if err != nil || tr == nil {
		t.Fatalf("got tracer %v, %v, want one", tr, err)
	}
	return tr
}

// attempt is one whose row came with such a traceparent; "": with none.
func attempt(parent string, result sink.Result) relay.Attempt {
	var h outbox.Headers
	h.Add("id", []byte("e-1"))
	if parent != "" {
		h.Add(traceparent, []byte(parent))
		h.Add(tracestate, []byte("vendor=x"))
	}
	at := time.Now()
	rec := &sink.Record{Topic: "events.order", Partition: 3, Offset: 42, Key: []byte("order-7"), Value: []byte("{}"),
		Headers: h, Result: result, At: at}
	if result == sink.Rejected {
		rec.Reason = &sink.Reason{Code: "MESSAGE_TOO_LARGE", Text: "too large"}
	}
	return relay.Attempt{Record: rec, ID: []byte("e-1"), Position: outbox.Position{},
		Received: at.Add(-5 * time.Millisecond), Number: 2}
}

// Breaks it catches: a span that is not a child of the producer's, lacks where the event went, or has other times. Seen
// to fail with the context not extracted, with the offset left out and with the span ended at the present time.
func TestSpanOfAnAttemptIsAChildOfTheProducers(t *testing.T) {
	collector := harness.NewSpans(t)
	tr := start(t, Config{Endpoint: collector.URL, Ratio: 1, Service: "orders-relay", Version: "v1",
		Logger: zerolog.Nop()})
	a, refused := attempt(yes, sink.Published), attempt(yes, sink.Rejected)
	tr.Attempted(a)
	tr.Attempted(refused)
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	spans, resource := collector.All()
	if len(spans) != 2 || resource["service.name"] != "orders-relay" {
		t.Fatalf("got %d spans of %v, want 2 of orders-relay", len(spans), resource)
	}
	s := spans[0]
	if hex.EncodeToString(s.GetTraceId()) != traceID || hex.EncodeToString(s.GetParentSpanId()) != spanID ||
		s.GetTraceState() != "vendor=x" {
		t.Errorf("context: got trace %x, parent %x, state %q", s.GetTraceId(), s.GetParentSpanId(), s.GetTraceState())
	}
	if got, want := s.GetEndTimeUnixNano()-s.GetStartTimeUnixNano(), uint64(a.Record.At.Sub(a.Received)); got != want {
		t.Errorf("duration: got %d ns, want %d", got, want)
	}
	for key, want := range map[string]string{
		"messaging.destination.name": "events.order", "messaging.destination.partition.id": "3",
		"messaging.kafka.offset": "42",
		"messaging.message.id":   "e-1", "messaging.kafka.message.key": "order-7", "cdc_relay.attempt": "2",
	} {
		if got := harness.SpanText(s, key); got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
	if got := spans[1]; got.GetStatus().GetMessage() != "too large" ||
		harness.SpanText(got, "error.type") != "MESSAGE_TOO_LARGE" {
		t.Errorf("the refused attempt: got status %v, want the reason", got.GetStatus())
	}
}

// Breaks it catches: traces that their producers did not want, or more of them than configured. Seen to fail with the
// flag not looked at and a sampler that takes everything, and with the ratio left out.
func TestOnlySampledTracesHaveSpans(t *testing.T) {
	for _, c := range []struct {
		name, parent string
		ratio        float64
	}{{"NotSampled", no, 1}, {"NoTrace", "", 1}, {"NoTraceparent", "abc", 1}, {"InvalidVersion", "ff" + yes[2:], 1},
		{"RatioOfNone", yes, 0}} {
		t.Run(c.name, func(t *testing.T) {
			collector := harness.NewSpans(t)
			tr := start(t, Config{Endpoint: collector.URL, Ratio: c.ratio, Service: "s", Logger: zerolog.Nop()})
			tr.Attempted(attempt(c.parent, sink.Published))
			if err := tr.Close(); err != nil {
				t.Fatal(err)
			}
			if spans, _ := collector.All(); len(spans) > 0 {
				t.Errorf("got %d spans, want none", len(spans))
			}
		})
	}
}

// Break it catches: an event without a sampled trace that costs an allocation. Seen to fail with the context extracted
// first.
func TestUnsampledEventsAllocateNothing(t *testing.T) {
	tr := start(t, Config{Endpoint: "http://127.0.0.1:1", Ratio: 1, Service: "s", Logger: zerolog.Nop()})
	defer func() { _ = tr.Close() }()
	a := attempt("", sink.Published)
	if got := testing.AllocsPerRun(100, func() { tr.Attempted(a) }); got > 0 {
		t.Errorf("allocations: got %v, want none", got)
	}
}

// Breaks it catches: no tracer without configuration, or OpenTelemetry's own variable not heard. Seen to fail
// with either variable not looked at.
func TestEndpointComesFromConfigurationOrOpenTelemetrysVariable(t *testing.T) {
	if tr, err := New(t.Context(), Config{}); tr != nil || err != nil {
		t.Fatalf("without an endpoint: got %v, %v, want no tracer", tr, err)
	}
	collector := harness.NewSpans(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_SERVICE_NAME", "by-variable")
	tr := start(t, Config{Ratio: 1, Service: "s", Logger: zerolog.Nop()})
	tr.Attempted(attempt(yes, sink.Published))
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	if spans, resource := collector.All(); len(spans) != 1 || resource["service.name"] != "by-variable" {
		t.Errorf("got %d spans of %v, want 1 of by-variable", len(spans), resource)
	}
}

// Breaks it catches: an event that waits for a collector that does not answer, spans without bound, a line in the log
// for each failure. Seen to fail with the exporter called synchronously and with the time between two lines left out.
func TestAbsentCollectorHoldsNobody(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-release
		http.Error(w, "full", http.StatusBadRequest)
	}))
	defer server.Close()
	var log bytes.Buffer
	tr := start(t, Config{Endpoint: server.URL, Ratio: 1, Service: "s", Logger: zerolog.New(zerolog.SyncWriter(&log))})
	a := attempt(yes, sink.Published)
	for range 10_000 { // five times what the queue holds
		tr.Attempted(a)
	}
	close(release)
	_ = tr.Close()
	if lines := strings.Count(log.String(), "cannot send spans"); lines != 1 {
		t.Errorf("lines in the log: got %d, want 1: %s", lines, log.String())
	}
}
