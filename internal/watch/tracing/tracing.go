// Package tracing makes a span of OpenTelemetry for each event whose row carries a sampled W3C traceparent, so that a
// trace shows how an event came from the transaction that wrote it into the topic. The message keeps the row's
// traceparent: a consumer's span and the relay's are both children of the producer's.
//
// Spans go to an OTLP/HTTP endpoint, in the background and in batches. They are not the truth about anything: while the
// endpoint is away, or slower than the events, spans are dropped, and no event waits.
package tracing

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sink"
)

// The headers of W3C Trace Context (https://www.w3.org/TR/trace-context/).
const (
	traceparent = "traceparent"
	tracestate  = "tracestate"
)

const (
	// shortest is the length of a traceparent of version 00; a later version may have more behind it.
	shortest = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	// flushPatience bounds the wait for the last spans at the end of the process.
	flushPatience = 2 * time.Second
	// complainEvery is the least time between two lines in the log about spans that could not be sent.
	complainEvery = time.Minute
)

// Config says where spans go.
type Config struct {
	Endpoint string  // URL of the OTLP/HTTP endpoint; empty: OpenTelemetry's variables decide, or there is no tracing
	Ratio    float64 // of the traces whose producer sampled them, 0 to 1
	Service  string  // service.name, unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES has one
	Version  string
	Logger   zerolog.Logger
}

// wanted reports whether an endpoint is configured, here or by OpenTelemetry's own variables.
func (c Config) wanted() bool {
	return c.Endpoint != "" || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" ||
		os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

var _ relay.Tracer = (*Tracer)(nil)

// Tracer makes and sends the spans. It is a [relay.Tracer].
type Tracer struct {
	provider *trace.TracerProvider
	tracer   oteltrace.Tracer
	carrier  propagation.TraceContext
}

// New starts a tracer; nil: no endpoint is configured. It does not connect yet.
func New(ctx context.Context, c Config) (*Tracer, error) {
	if !c.wanted() {
		return nil, nil
	}
	var options []otlptracehttp.Option
	if c.Endpoint != "" {
		options = append(options, otlptracehttp.WithEndpointURL(tracesURL(c.Endpoint)))
	}
	exporter, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("prepare to send spans to %s: %w", c.Endpoint, err)
	}
	described, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", c.Service), attribute.String("service.version", c.Version)),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("read OpenTelemetry's description of this process: %w", err)
	}
	otel.SetErrorHandler(&complaints{log: c.Logger})
	chosen := trace.ParentBased(trace.NeverSample(), trace.WithRemoteParentSampled(trace.TraceIDRatioBased(c.Ratio)))
	t := &Tracer{provider: trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(described),
		trace.WithSampler(chosen))}
	t.tracer = t.provider.Tracer("github.com/cdc-relay/cdc-relay", oteltrace.WithInstrumentationVersion(c.Version))
	return t, nil
}

// tracesURL adds the path that the specification of OTLP/HTTP has for traces, where none is given.
func tracesURL(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil || strings.Trim(u.Path, "/") != "" {
		return endpoint
	}
	return u.JoinPath("v1", "traces").String()
}

// Close sends what is left, for at most two seconds.
func (t *Tracer) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), flushPatience)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("send the last spans: %w", err)
	}
	return nil
}

// Attempted makes the span of an attempt, from the receipt of the event to the broker's answer. Events whose producer
// did not sample its trace, or has none, cost a look at their headers. Names and attributes are those of
// OpenTelemetry's semantic conventions for messaging, and cdc_relay's own.
func (t *Tracer) Attempted(a relay.Attempt) {
	rec := a.Record
	if !bytes.Contains(rec.Headers.Block(), []byte(traceparent)) {
		return
	}
	parent, _ := rec.Headers.Get(traceparent)
	if !sampled(parent) {
		return
	}
	state, _ := rec.Headers.Get(tracestate)
	ctx := t.carrier.Extract(context.Background(),
		propagation.MapCarrier{traceparent: string(parent), tracestate: string(state)})
	// A client's span, not a producer's: the message carries the context that the row came with.
	_, span := t.tracer.Start(ctx, "send "+rec.Topic, oteltrace.WithSpanKind(oteltrace.SpanKindClient),
		oteltrace.WithTimestamp(a.Received),
		oteltrace.WithLinks(oteltrace.LinkFromContext(ctx)))
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(
		attribute.String("messaging.system", "kafka"),
		attribute.String("messaging.operation.name", "send"),
		attribute.String("messaging.operation.type", "send"),
		attribute.String("messaging.destination.name", rec.Topic),
		attribute.String("messaging.destination.partition.id", strconv.Itoa(int(rec.Partition))),
		attribute.String("messaging.message.id", string(a.ID)),
		attribute.Int("messaging.message.body.size", len(rec.Value)),
		attribute.String("cdc_relay.position", a.Position.String()),
		attribute.Int("cdc_relay.attempt", a.Number),
	)
	if rec.Key != nil {
		span.SetAttributes(attribute.String("messaging.kafka.message.key", string(rec.Key)))
	}
	if rec.Result == sink.Published {
		span.SetAttributes(attribute.Int64("messaging.kafka.offset", rec.Offset))
	} else {
		span.SetAttributes(attribute.String("error.type", rec.Reason.Code))
		span.SetStatus(codes.Error, rec.Reason.Text)
	}
	span.End(oteltrace.WithTimestamp(rec.At))
}

// sampled reads the flag from a traceparent without allocating; a malformed traceparent is found later.
func sampled(parent []byte) bool {
	if len(parent) < shortest {
		return false
	}
	flags, err := strconv.ParseUint(string(parent[shortest-2:shortest]), 16, 8)
	return err == nil && flags&1 == 1
}

// complaints logs what OpenTelemetry could not do: the first at once, then one line a minute with their number.
type complaints struct {
	log zerolog.Logger

	mu    sync.Mutex
	last  time.Time // guarded by mu
	since int       // not told since then; guarded by mu
}

// Handle is called by OpenTelemetry for each failure.
func (c *complaints) Handle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since++
	if time.Since(c.last) < complainEvery {
		return
	}
	c.log.Warn().Err(err).Int("failures", c.since).Msg("cannot send spans; they are dropped, events are not concerned")
	c.last, c.since = time.Now(), 0
}
