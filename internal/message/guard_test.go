package message

import (
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/message/schemas"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Breaks it catches: a panic or an endless validation that ends more than its own event, a reason without the code, a
// stack that no one sees. Seen to fail (a panic) without the recover in Encode, and without the one in Copy; also with
// no one told of the panic, and with its reason without the code.
func TestAPanicCostsItsOwnEventOnly(t *testing.T) {
	r := newRouted(t, nil)
	r.hooks.Misfit = func(_, payload []byte) string {
		switch string(payload) {
		case "short":
			return string(payload[len(payload)])
		case "slow":
			panic(&schemas.TooLong{After: time.Second})
		}
		return ""
	}
	told := ""
	r.hooks.Panicked = func(id []byte, value any, stack []byte) { told += string(id) + " " + string(stack) }
	for payload, want := range map[string]string{"short": "ENCODER_PANIC", "slow": "ENCODER_TIMEOUT", "good": ""} {
		var d carried
		d.event = anEvent()
		d.event.Payload = text(payload)
		reason := r.route(&d)
		switch {
		case want == "" && reason != nil:
			t.Errorf("%s: got %v, want a message", payload, reason)
		case want != "" && (reason == nil || reason.Code != want || reason.Class != outbox.Permanent):
			t.Errorf("%s: got %+v, want a permanent %s", payload, reason, want)
		}
		if want == "" && string(d.record.Value) != payload {
			t.Errorf("%s: got the value %q", payload, d.record.Value)
		}
	}
	if !strings.HasPrefix(told, "e1 ") || strings.Count(told, "TestAPanicCostsItsOwnEventOnly.func1") != 1 {
		t.Errorf("told: got %q, want the id and the stack of the panic, once", told)
	}
	r.format.name = config.FormatPlain
	r.topics.copies = template{fields: []field{firstExtra + 7}} // which no event has
	var copied sink.Record
	event := anEvent()
	if reason := r.Copy(Dead{Event: &event, Record: &sink.Record{}, Reason: &sink.Reason{}}, &copied); reason == nil ||
		reason.Code != "ENCODER_PANIC" {
		t.Errorf("copy: got %v, want ENCODER_PANIC", reason)
	}
}

// FuzzEvents looks for columns of a row with which making a message panics, in every format and type of payload.
func FuzzEvents(f *testing.F) {
	add := func(id, kind, key, payload, headers, created string) {
		for which := range len(formats) * 4 {
			f.Add(which, text(id), text(kind), text(key), text(payload), text(headers), text(created))
		}
	}
	add("e1", "order", "a1", `{"n": 1}`, `{"a": "b"}`, "2026-11-21 16:36:32.5+00")
	add("", "", "", "", "", "")
	add("\xff\x00", "\xc3", strings.Repeat("k", 5000), "\xff", `{"\u0000": "\ud800"}`, "infinity")
	add("1", "a/b", "\n", strings.Repeat("[", 5000), `{"a": 1e999999999}`, "10000-01-01 00:00:00+00")
	add("1", "a", "k", "1", "{"+strings.Repeat(`"a": [`, 5000), "0001-01-01 00:00:00 BC")
	add("1", "a", "k", "1", `{"X-OUTBOX-a": "", "": "x"}`, "2026-11-21 24:00:60")
	columns := []string{"jsonb", "json", "text", "bytea"}
	encoders := make([]*routed, 0, len(formats)*len(columns))
	for _, format := range formats {
		for _, column := range columns {
			encoders = append(encoders, newFormatted(f, format, column, func(c *config.Config) {
				c.Message.Topic, c.DLQ.Topic = "t.{aggregate_type}", "{topic}.dead"
			}))
		}
	}
	f.Fuzz(func(t *testing.T, which int, id, kind, key, payload, headers, created []byte) {
		r := encoders[uint(which)%uint(len(encoders))]
		r.hooks.Panicked = func(_ []byte, value any, stack []byte) { t.Fatalf("panic: %v\n%s", value, stack) }
		d := carried{event: outbox.Event{ID: id, AggregateType: kind, AggregateID: key, EventType: kind, Payload: payload,
			Headers: headers, CreatedAt: created}}
		reason := r.route(&d)
		if reason == nil {
			r.keep(&d)
			return
		}
		if reason.Code == "" || reason.Text == "" || reason.Class != outbox.Permanent {
			t.Errorf("reason %+v", reason)
		}
		var copied sink.Record
		r.Copy(Dead{Event: &d.event, Record: &d.record, Reason: reason}, &copied)
	})
}
