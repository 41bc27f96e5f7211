package test

import (
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Rows come with the trace of the transaction that wrote them. Breaks it catches: a sampled event without its span, an
// unsampled one with a span, a span that says another place than the event's, a message whose traceparent is not the
// row's. Seen to fail with the tracer not given to the relay, and with spans that begin when they end.
func TestTraceGoesFromTheRowIntoTheTopic(t *testing.T) {
	collector := harness.NewSpans(t)
	s := startScenario(t, harness.Postgres(t), harness.Kafka(t), "tracing.endpoint", collector.URL)
	const events = 20 // every second one sampled
	parent := func(n int) string { return fmt.Sprintf("00-%032x-%016x-%02x", n+1, n+1, n%2) }
	for n := range events {
		s.pg.Exec(t, fmt.Sprintf(`INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, headers)
			VALUES ('%s', 'one', 'Made', '{}', '{"traceparent": "%s"}')`, s.types[0], parent(n)))
	}
	s.pg.WaitConfirmed(t, s.settings.Slot(), settlePatience)
	s.relay.Stop(t) // which sends the last spans

	offsets := map[string]string{} // by traceparent
	harness.Consume(t, s.kafka.Addrs, []string{s.settings.Topic(s.types[0])}, func(r *kgo.Record) {
		offsets[string(harness.Header(r, "traceparent"))] = fmt.Sprintf("%d/%d", r.Partition, r.Offset)
	})
	spans, _ := collector.All()
	if len(offsets) != events || len(spans) != events/2 {
		t.Fatalf("got %d messages with a traceparent of their own and %d spans, want %d and %d", len(offsets), len(spans),
			events, events/2)
	}
	for _, span := range spans {
		from := fmt.Sprintf("00-%s-%s-01", hex.EncodeToString(span.GetTraceId()), hex.EncodeToString(span.GetParentSpanId()))
		place := harness.SpanText(span, "messaging.destination.partition.id") + "/" +
			harness.SpanText(span, "messaging.kafka.offset")
		if offsets[from] != place {
			t.Errorf("the span of %s: got place %s, want that of the message, %q", from, place, offsets[from])
		}
		if took := time.Duration(span.GetEndTimeUnixNano() - span.GetStartTimeUnixNano()); took <= 0 ||
			took > settlePatience {
			t.Errorf("the span of %s took %v", from, took)
		}
	}
}
