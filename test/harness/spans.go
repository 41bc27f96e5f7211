package harness

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Spans is a collector of OpenTelemetry's spans, by OTLP/HTTP.
type Spans struct {
	URL string

	mu       sync.Mutex
	spans    []*otlp.Span      // guarded by mu
	resource map[string]string // of the last ones; guarded by mu
}

// NewSpans starts a collector, which ends with the test.
func NewSpans(t testing.TB) *Spans {
	t.Helper()
	c := &Spans{resource: map[string]string{}}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

// ServeHTTP takes in a request with spans.
func (c *Spans) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = unpacked
	}
	var request collector.ExportTraceServiceRequest
	data, err := io.ReadAll(body)
	if err == nil {
		err = proto.Unmarshal(data, &request)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, "no spans", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range request.GetResourceSpans() {
		for _, a := range resource.GetResource().GetAttributes() {
			c.resource[a.GetKey()] = a.GetValue().GetStringValue()
		}
		for _, scope := range resource.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
}

// All are the spans that have come so far, and the attributes of what sent them.
func (c *Spans) All() (spans []*otlp.Span, resource map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append(spans, c.spans...), c.resource
}

// SpanText is the value of a span's attribute as text; numbers in decimal. Empty: it has none.
func SpanText(s *otlp.Span, key string) string {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == key {
			return anyText(a.GetValue())
		}
	}
	return ""
}

func anyText(v interface {
	GetStringValue() string
	GetIntValue() int64
}) string {
	if text := v.GetStringValue(); text != "" {
		return text
	}
	return strconv.FormatInt(v.GetIntValue(), 10)
}
