package inbox

import (
	"context"
	"encoding/hex"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

type tracing struct{ tracer trace.Tracer }

func newTracing(p trace.TracerProvider) tracing {
	if p == nil {
		p = otel.GetTracerProvider()
	}
	return tracing{p.Tracer("github.com/cdc-relay/cdc-relay/inbox")}
}

// begin makes a span for a message whose traceparent is sampled, its child. parent is the traceparent for what the
// handler writes; "" without one.
func (t tracing) begin(
	ctx context.Context, system, consumer string, m *Message,
) (_ context.Context, _ trace.Span, parent string) {
	value, there := m.Header("traceparent")
	if !there {
		return ctx, nil, ""
	}
	from, valid := parseTraceparent(string(value))
	if !valid {
		return ctx, nil, ""
	}
	if !from.IsSampled() {
		return ctx, nil, string(value)
	}
	ctx = trace.ContextWithRemoteSpanContext(ctx, from)
	ctx, span := t.tracer.Start(ctx, "process "+m.Topic, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.String("messaging.system", system),
		attribute.String("messaging.operation.type", "process"),
		attribute.String("messaging.destination.name", m.Topic),
		attribute.Int("messaging.destination.partition.id", int(m.Partition)),
		attribute.Int64("messaging."+system+".offset", m.Offset),
		attribute.String("messaging.consumer.group.name", consumer),
		attribute.String("messaging.message.id", m.ID),
		attribute.String("event.type", m.Type),
		attribute.Int("attempt", m.Attempt),
	))
	if sc := span.SpanContext(); sc.IsValid() {
		return ctx, span, fmt.Sprintf("00-%s-%s-%s", sc.TraceID(), sc.SpanID(), sc.TraceFlags())
	}
	return ctx, span, string(value)
}

func endSpan(span trace.Span, err error) {
	if span == nil {
		return
	}
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// parseTraceparent reads W3C's header: version, trace, parent, flags.
func parseTraceparent(s string) (trace.SpanContext, bool) {
	if len(s) < 55 || s[2] != '-' || s[35] != '-' || s[52] != '-' || s[:2] == "ff" || len(s) > 55 && s[55] != '-' {
		return trace.SpanContext{}, false
	}
	id, err := trace.TraceIDFromHex(s[3:35])
	if err != nil {
		return trace.SpanContext{}, false
	}
	span, err := trace.SpanIDFromHex(s[36:52])
	if err != nil {
		return trace.SpanContext{}, false
	}
	flags, err := hex.DecodeString(s[53:55])
	if err != nil {
		return trace.SpanContext{}, false
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: id, SpanID: span, TraceFlags: trace.TraceFlags(flags[0]), Remote: true,
	}), true
}

// traceparent hands the trace on to what the handler emits: emit() takes it from this setting. "" takes an earlier one
// off.
func (r *run) traceparent(ctx context.Context, parent string) error {
	if parent == "" && !r.traced {
		return nil
	}
	r.traced = parent != ""
	_, err := r.watch.tx.Exec(ctx, "SELECT set_config('outbox.traceparent', $1, true)", parent)
	return own(err)
}
