package message

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// newFormatted is newRouted for a format and a type of the payload column.
func newFormatted(t testing.TB, name, payloadType string, change func(*config.Config)) *routed {
	t.Helper()
	c := config.Default()
	c.Outbox.Columns.Headers = "headers"
	c.Message.Format = name
	if change != nil {
		change(&c)
	}
	r := &routed{columns: Columns(c)}
	var err error
	if r.Encoder, err = New(c, r.columns, payloadType, Hooks{Shadowed: func() { r.shadowed++ }}); err != nil {
		t.Fatalf("New: %v", err)
	}
	r.Begin("sys/1/7", 3)
	r.At(time.UnixMilli(1_700_000_000_123))
	return r
}

var rewrite = flag.Bool("rewrite", false, "write the examples in the documentation")

var formats = []string{config.FormatPlain, config.FormatEnvelope, config.FormatCloudEvents}

// Breaks it catches: a field in another place or under another name, NULL as text, a document as a string, a string as
// a document, bytes as anything but base64, whitespace of a json column changed.
func TestEnvelopeHoldsTheEvent(t *testing.T) {
	const before = `{"id":"e1","type":"made","aggregate_type":"order","aggregate_id":"a1",` +
		`"occurred_at":"2026-11-21T16:36:32.5Z","payload":`
	for _, c := range []struct {
		name, payloadType string
		change            func(*outbox.Event)
		want              string
	}{
		{"jsonb", "jsonb", nil, before + `{"n": 1}}`},
		{"json keeps its form", "json", func(e *outbox.Event) { e.Payload = text("{\n \"b\":1e400, \"a\":\"\\u0000\"}") },
			before + "{\n \"b\":1e400, \"a\":\"\\u0000\"}}"},
		{"JSON null is a value", "jsonb", func(e *outbox.Event) { e.Payload = text("null") }, before + `null}`},
		{"text", "text", func(e *outbox.Event) { e.Payload = text("say \"hi\"\n") }, before + `"say \"hi\"\n"}`},
		{"JSON in a text column is text", "text", func(e *outbox.Event) { e.Payload = text(`{"n":`) }, before + `"{\"n\":"}`},
		{"empty text", "text", func(e *outbox.Event) { e.Payload = []byte{} }, before + `""}`},
		{"bytes", "bytea", func(e *outbox.Event) { e.Payload = []byte{0xfb, 0xff, 0} }, before + `"+/8A"}`},
		{"no bytes", "bytea", func(e *outbox.Event) { e.Payload = []byte{} }, before + `""}`},
		{"NULL", "jsonb", func(e *outbox.Event) {
			e.EventType, e.AggregateType, e.AggregateID, e.CreatedAt = nil, nil, nil, nil
		}, `{"id":"e1","type":null,"aggregate_type":null,"aggregate_id":null,"occurred_at":null,"payload":{"n": 1}}`},
		{"infinity", "jsonb", func(e *outbox.Event) { e.CreatedAt = text("infinity") },
			strings.Replace(before, `"2026-11-21T16:36:32.5Z"`, "null", 1) + `{"n": 1}}`},
		{"escapes", "jsonb", func(e *outbox.Event) {
			e.ID, e.AggregateID = text("a\"\\\x01"), text("é\u2028\U0001F600\x7f")
		},
			`{"id":"a\"\\\u0001","type":"made","aggregate_type":"order","aggregate_id":"é` + "\u2028\U0001F600\x7f" +
				`","occurred_at":"2026-11-21T16:36:32.5Z","payload":{"n": 1}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newFormatted(t, config.FormatEnvelope, c.payloadType, func(c *config.Config) { c.Message.Topic = "events" })
			d := &carried{event: anEvent()}
			if c.change != nil {
				c.change(&d.event)
			}
			if reason := r.route(d); reason != nil {
				t.Fatal(reason)
			}
			if diff := cmp.Diff(c.want, string(d.record.Value)); diff != "" {
				t.Errorf("envelope (-want +got):\n%s", diff)
			}
			if !json.Valid(d.record.Value) {
				t.Errorf("the envelope is not JSON: %s", d.record.Value)
			}
			if id, _ := d.record.Headers.Get("id"); !bytes.Equal(id, d.event.ID) {
				t.Errorf("header id: got %q, want %q: an envelope has the standard headers, too", id, d.event.ID)
			}
		})
	}
}

// What comes out must mean what went in, by an independent decoder, whatever the texts and their lengths. Breaks it
// catches: an escape left out, a byte lost at the end of a chunk, a wrong length of base64.
func TestEnvelopeDecodesToTheEvent(t *testing.T) {
	for payloadType, decode := range map[string]func(json.RawMessage) []byte{
		"json": func(raw json.RawMessage) []byte { return raw },
		"text": func(raw json.RawMessage) (b []byte) {
			var s string
			if json.Unmarshal(raw, &s) != nil {
				return nil
			}
			return []byte(s)
		},
		"bytea": func(raw json.RawMessage) (b []byte) {
			var s string
			if json.Unmarshal(raw, &s) != nil {
				return nil
			}
			b, _ = base64.StdEncoding.DecodeString(s)
			return b
		},
	} {
		r := newFormatted(t, config.FormatEnvelope, payloadType, nil)
		rapid.Check(t, func(t *rapid.T) {
			word := rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) })
			d := &carried{event: anEvent()}
			d.event.ID, d.event.EventType = word.Draw(t, "id"), word.Draw(t, "type")
			d.event.AggregateType, d.event.AggregateID = text("order"), word.Draw(t, "ref")
			switch payloadType {
			case "json":
				d.event.Payload, _ = json.Marshal(rapid.String().Draw(t, "payload"))
			case "text":
				d.event.Payload = []byte(strings.Repeat(rapid.String().Draw(t, "payload"), rapid.IntRange(1, 500).Draw(t, "times")))
			case "bytea":
				d.event.Payload = rapid.SliceOfN(rapid.Byte(), 0, 9000).Draw(t, "payload")
			}
			if reason := r.route(d); reason != nil {
				t.Fatal(reason)
			}
			var got struct {
				ID, Type    string
				AggregateID string `json:"aggregate_id"`
				Payload     json.RawMessage
			}
			if err := json.Unmarshal(d.record.Value, &got); err != nil {
				t.Fatalf("the envelope is not JSON: %v: %.200s", err, d.record.Value)
			}
			if got.ID != string(d.event.ID) || got.Type != string(d.event.EventType) ||
				got.AggregateID != string(d.event.AggregateID) {
				t.Fatalf("got id %q type %q aggregate_id %q, want %q %q %q", got.ID, got.Type, got.AggregateID, d.event.ID,
					d.event.EventType, d.event.AggregateID)
			}
			if payload := decode(got.Payload); !bytes.Equal(payload, d.event.Payload) {
				t.Fatalf("payload: got %.100q, want %.100q", payload, d.event.Payload)
			}
		})
	}
}

// Break it catches: SQL NULL wrapped or filled, so that nothing tells that the thing is gone.
func TestNullPayloadIsATombstoneInEveryFormat(t *testing.T) {
	for _, name := range formats {
		for _, payloadType := range []string{"jsonb", "text", "bytea"} {
			r, d := newFormatted(t, name, payloadType, nil), &carried{event: anEvent()}
			d.event.Payload = nil
			if reason := r.route(d); reason != nil || d.record.Value != nil {
				t.Errorf("%s, %s: got value %q, reason %v; want a tombstone", name, payloadType, d.record.Value, reason)
			}
			if _, found := d.record.Headers.Get("content-type"); found {
				t.Errorf("%s, %s: a tombstone has a content type", name, payloadType)
			}
		}
	}
}

// Breaks it catches: broken text replaced or passed on as UTF-8, a reason with the payload in it, bytes refused that
// need not be text, a CloudEvent without type.
func TestEventThatItsFormatCannotCarryIsDead(t *testing.T) {
	broken := text("secret\xff")
	for _, c := range []struct {
		name, payloadType string
		change            func(*outbox.Event)
		plain, envelope   string // code, "" = it goes out
		cloudEvents       string
	}{
		{"broken text", "text", func(e *outbox.Event) { e.Payload = broken }, "", "INVALID_PAYLOAD", "INVALID_PAYLOAD"},
		{"broken document", "json", func(e *outbox.Event) { e.Payload = broken }, "", "INVALID_PAYLOAD", "INVALID_PAYLOAD"},
		{"bytes", "bytea", func(e *outbox.Event) { e.Payload = broken }, "", "", ""},
		{"broken id", "jsonb", func(e *outbox.Event) { e.ID = broken }, "", "INVALID_ATTRIBUTE", "INVALID_ATTRIBUTE"},
		{"broken event type", "bytea", func(e *outbox.Event) { e.EventType = broken }, "", "INVALID_ATTRIBUTE",
			"INVALID_ATTRIBUTE"},
		{"broken aggregate id", "jsonb", func(e *outbox.Event) { e.AggregateID = broken }, "", "INVALID_ATTRIBUTE",
			"INVALID_ATTRIBUTE"},
		{"no event type", "jsonb", func(e *outbox.Event) { e.EventType = nil }, "", "", "INVALID_ATTRIBUTE"},
		{"empty event type", "jsonb", func(e *outbox.Event) { e.EventType = []byte{} }, "", "", "INVALID_ATTRIBUTE"},
		{"empty id", "jsonb", func(e *outbox.Event) { e.ID = []byte{} }, "", "", "INVALID_ATTRIBUTE"},
		{"tombstone without type", "jsonb", func(e *outbox.Event) { e.Payload, e.EventType = nil, nil }, "", "",
			"INVALID_ATTRIBUTE"},
	} {
		for i, want := range []string{c.plain, c.envelope, c.cloudEvents} {
			r, d := newFormatted(t, formats[i], c.payloadType, nil), &carried{event: anEvent()}
			c.change(&d.event)
			reason := r.route(d)
			switch {
			case want == "" && reason != nil:
				t.Errorf("%s, %s: got %v, want it sent", c.name, formats[i], reason)
			case want != "" && (reason == nil || reason.Code != want || reason.Class != outbox.Permanent):
				t.Errorf("%s, %s: got %v, want %s, permanent", c.name, formats[i], reason, want)
			case want != "" && strings.Contains(reason.Text, "secret"):
				t.Errorf("%s, %s: the reason shows the event's data: %v", c.name, formats[i], reason)
			}
		}
	}
	for _, name := range formats {
		if _, err := newFormat(config.Config{Message: config.Message{Format: name}}, "point"); err == nil {
			t.Errorf("%s: a payload column of type point: got no error", name)
		}
	}
}

// Break it catches: a format that forgets renames or message.timestamp.
func TestRenamesAndTimestampsHoldInPlainAndEnvelope(t *testing.T) {
	for _, name := range formats {
		r := newFormatted(t, name, "jsonb", func(c *config.Config) {
			c.Message.Timestamp = config.TimestampCreatedAt
			c.Message.Headers = map[string]string{"actor": "x-actor"}
			if name != config.FormatCloudEvents {
				c.Message.Headers["id"] = "x-event-id"
			}
		})
		d := &carried{event: anEvent()}
		d.event.Extra = [][]byte{text("bob")}
		if reason := r.route(d); reason != nil {
			t.Fatal(reason)
		}
		if want := time.Date(2026, 11, 21, 16, 36, 32, 500e6, time.UTC).UnixMilli(); d.record.Timestamp != want {
			t.Errorf("%s: got timestamp %d, want %d", name, d.record.Timestamp, want)
		}
		list := headerList(d.record.Headers)
		for _, want := range []string{map[bool]string{true: "ce_id=e1",
			false: "x-event-id=e1"}[name == config.FormatCloudEvents], "x-actor=bob", "x-outbox-epoch=3"} {
			if !slices.Contains(list, want) {
				t.Errorf("%s: got headers %q, want %s among them", name, list, want)
			}
		}
		if r = newFormatted(t, name, "jsonb", nil); r.route(d) != nil || d.record.Timestamp != 1_700_000_000_123 {
			t.Errorf("%s: got timestamp %d, want that of publishing", name, d.record.Timestamp)
		}
	}
}

// Break it catches: a CloudEvent's header, in any spelling, that a row forges, or one that only other formats own. Seen
// to fail with a header counted as shadowed and added all the same.
func TestRowsCannotSetACloudEventsAttributes(t *testing.T) {
	r, d := newFormatted(t, config.FormatCloudEvents, "jsonb", nil), &carried{event: anEvent()}
	d.event.Headers = text(`{"CE_ID": "forged", "ce_subject": "forged", "Content-Type": "x",
		"x-outbox-epoch": "9", "ce_dataschema": "urn:mine", "id": "mine"}`)
	if reason := r.route(d); reason != nil {
		t.Fatal(reason)
	}
	want := []string{"ce_id=e1", "ce_type=made", "ce_aggregatetype=order", "ce_specversion=1.0",
		"ce_source=/cdc-relay/cdc-relay/public.outbox_events",
		"ce_subject=a1", "content-type=application/json", "ce_time=2026-11-21T16:36:32.5Z", "ce_dataschema=urn:mine",
		"id=mine",
		"x-outbox-position=16/B374D848/4", "x-outbox-source=sys/1/7", "x-outbox-epoch=3"}
	if diff := cmp.Diff(want, headerList(d.record.Headers)); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if r.shadowed != 4 {
		t.Errorf("shadowed: got %d, want 4", r.shadowed)
	}
}

// An envelope shares its buffer with keys and headers. Breaks it catches: one that the next event writes over, at every
// size around that of a chunk and of what gets memory of its own.
func TestLaterEventsNeverOverwriteEnvelopes(t *testing.T) {
	r := newFormatted(t, config.FormatEnvelope, "text", nil)
	var deliveries []*carried
	var want []string
	for i := range 1500 {
		d := &carried{event: anEvent()}
		d.event.Payload = []byte(strings.Repeat(fmt.Sprintf("%d\n", i), 1+i%1200)) // escapes outgrow what was reserved
		if reason := r.route(d); reason != nil {
			t.Fatal(reason)
		}
		deliveries, want = append(deliveries, d), append(want,
			string(d.record.Value)+strings.Join(headerList(d.record.Headers), " "))
	}
	for i, d := range deliveries {
		if got := string(d.record.Value) + strings.Join(headerList(d.record.Headers), " "); got != want[i] {
			t.Fatalf("event %d: was %.100q, is %.100q", i, want[i], got)
		}
		if d.record.Cost < len(d.record.Value)+len(d.event.Payload) {
			t.Fatalf("event %d: got cost %d, want at least value and payload, %d + %d", i, d.record.Cost, len(d.record.Value),
				len(d.event.Payload))
		}
	}
}

// Break it catches: a format that allocates per event beside the shared buffer: an envelope of 200 bytes shares a chunk
// with a hundred others. Seen to fail with a copy of each string.
func TestFormatsDoNotAllocatePerEvent(t *testing.T) {
	for _, name := range formats {
		for _, payloadType := range []string{"jsonb", "text", "bytea"} {
			r, d := newFormatted(t, name, payloadType, nil), &carried{event: anEvent()}
			const events = 1000
			per := testing.AllocsPerRun(5, func() {
				for range events {
					if reason := r.route(d); reason != nil {
						t.Fatal(reason)
					}
				}
			}) / events
			if per > 0.03 {
				t.Errorf("%s, %s: got %.3f allocations per event, want at most 0.03", name, payloadType, per)
			}
		}
	}
}

// Break it catches: an escape that RFC 8259 wants and is left out, at any byte.
func FuzzJSONString(f *testing.F) {
	f.Add([]byte("a\"b\\c\x00\x1f\n\r\té\u2028"))
	f.Fuzz(func(t *testing.T, s []byte) {
		if !utf8.Valid(s) {
			return
		}
		encoded := appendString(nil, s)
		var back string
		if err := json.Unmarshal(encoded, &back); err != nil || back != string(s) {
			t.Errorf("%q: got %s, which reads back as %q, %v", s, encoded, back, err)
		}
	})
}

func BenchmarkRoute(b *testing.B) {
	for _, name := range formats {
		b.Run(name, func(b *testing.B) {
			r, d := newFormatted(b, name, "jsonb", nil), &carried{event: anEvent()}
			d.event.Payload = fmt.Appendf(nil, `{"filler": %q}`, strings.Repeat("x", 280))
			b.ReportAllocs()
			for b.Loop() {
				if reason := r.route(d); reason != nil {
					b.Fatal(reason)
				}
			}
		})
	}
}
