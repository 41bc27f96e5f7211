package message

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/spec"
	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// kafkaMessage is a record as a consumer hands it to the CloudEvents SDK, by the rules of the Kafka protocol binding:
// names without case, ce_ before each attribute, content-type for the type of the data, the value for the data itself.
// The SDK says which attributes there are, what their types are and whether the event is valid.
type kafkaMessage struct {
	value   []byte
	headers map[string]string
}

var kafkaBinding = spec.WithPrefix("ce_")

func kafkaMessageOf(r *sink.Record) *kafkaMessage {
	m := &kafkaMessage{value: r.Value, headers: map[string]string{}}
	for k, v := range r.Headers.All() {
		m.headers[strings.ToLower(k)] = string(v)
	}
	return m
}

func (m *kafkaMessage) version() spec.Version {
	return kafkaBinding.Version(m.headers[kafkaBinding.PrefixedSpecVersionName()])
}

func (m *kafkaMessage) ReadEncoding() binding.Encoding {
	if strings.HasPrefix(m.headers["content-type"], "application/cloudevents") {
		return binding.EncodingStructured
	}
	if m.version() == nil {
		return binding.EncodingUnknown
	}
	return binding.EncodingBinary
}

func (m *kafkaMessage) ReadStructured(context.Context, binding.StructuredWriter) error {
	return binding.ErrNotStructured
}

func (m *kafkaMessage) ReadBinary(_ context.Context, w binding.BinaryWriter) error {
	for name, value := range m.headers {
		var err error
		if name == "content-type" {
			err = w.SetAttribute(m.version().AttributeFromKind(spec.DataContentType), value)
		} else if attribute := m.version().Attribute(name); attribute != nil {
			err = w.SetAttribute(attribute, value)
		} else if extension, is := strings.CutPrefix(name, "ce_"); is {
			err = w.SetExtension(extension, value)
		}
		if err != nil {
			return err
		}
	}
	if m.value == nil {
		return nil
	}
	return w.SetData(bytes.NewReader(m.value))
}

func (m *kafkaMessage) GetAttribute(k spec.Kind) (spec.Attribute, any) {
	attribute := m.version().AttributeFromKind(k)
	return attribute, m.headers[attribute.PrefixedName()]
}

func (m *kafkaMessage) GetExtension(name string) any { return m.headers["ce_"+name] }

func (m *kafkaMessage) Finish(error) error { return nil }

// readCloudEvent lets the SDK read the record and judge it.
func readCloudEvent(t *testing.T, r *sink.Record) *event.Event {
	t.Helper()
	e, err := binding.ToEvent(t.Context(), kafkaMessageOf(r))
	if err != nil {
		t.Fatalf("the SDK cannot read the message: %v", err)
	}
	if err := e.Validate(); err != nil {
		t.Fatalf("the SDK finds the event invalid: %v", err)
	}
	return e
}

// Breaks it catches: an attribute left out, misspelt or of a form that the SDK cannot read; a source that is no URI
// reference; an extension whose name is not allowed; a content type that is not the payload's.
func TestCloudEventsAreWhatTheSDKReads(t *testing.T) {
	odd := func(c *config.Config) { c.Service, c.Outbox.Table = "orders / größe?", "App.Outbox$1" }
	for _, c := range []struct {
		name, payloadType, payload string
		change                     func(*config.Config)
		contentType, source        string
	}{
		{"jsonb", "jsonb", `{"n": 1}`, nil, "application/json", "/cdc-relay/cdc-relay/public.outbox_events"},
		{"json", "json", `[1,  2]`, nil, "application/json", "/cdc-relay/cdc-relay/public.outbox_events"},
		{"text", "text", "grüße", nil, "text/plain; charset=utf-8", "/cdc-relay/cdc-relay/public.outbox_events"},
		{"bytea", "bytea", "\x00\xff", nil, "application/octet-stream", "/cdc-relay/cdc-relay/public.outbox_events"},
		{"odd names", "jsonb", `1`, odd, "application/json", "/cdc-relay/orders%20%2F%20gr%C3%B6%C3%9Fe%3F/App.Outbox$1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, d := newFormatted(t, config.FormatCloudEvents, c.payloadType, c.change), &carried{event: anEvent()}
			d.event.Payload = text(c.payload)
			if reason := r.route(d); reason != nil {
				t.Fatal(reason)
			}
			e := readCloudEvent(t, &d.record)
			for _, check := range []struct{ what, got, want string }{
				{"specversion", e.SpecVersion(), "1.0"}, {"id", e.ID(), "e1"}, {"source", e.Source(), c.source},
				{"type", e.Type(), "made"},
				{"subject", e.Subject(), "a1"}, {"datacontenttype", e.DataContentType(), c.contentType},
				{"data", string(e.Data()), c.payload},
			} {
				if check.got != check.want {
					t.Errorf("%s: got %q, want %q", check.what, check.got, check.want)
				}
			}
			if want := time.Date(2026, 11, 21, 16, 36, 32, 500e6, time.UTC); !e.Time().Equal(want) {
				t.Errorf("time: got %v, want %v", e.Time(), want)
			}
			if got := e.Extensions(); len(got) != 1 || got["aggregatetype"] != "order" {
				t.Errorf("extensions: got %v, want aggregatetype alone", got)
			}
		})
	}
}

// Optional attributes must be absent rather than empty or malformed. Breaks it catches: an empty subject, a time that
// is not one, a tombstone with data.
func TestCloudEventLeavesOutWhatItDoesNotHave(t *testing.T) {
	for _, created := range [][]byte{nil, text("infinity"), text("0044-03-15 12:00:00+00 BC"),
		text("12026-11-21 16:36:32+00")} {
		r := newFormatted(t, config.FormatCloudEvents, "jsonb", nil)
		d := &carried{event: outbox.Event{
			ID: text("7"), AggregateType: text("order"), EventType: text("gone"), CreatedAt: created,
		}}
		if reason := r.route(d); reason != nil {
			t.Fatal(reason)
		}
		e := readCloudEvent(t, &d.record)
		if e.Subject() != "" || !e.Time().IsZero() || e.DataContentType() != "" || e.Data() != nil {
			t.Errorf("created_at %q: got subject %q time %v content type %q data %q, want none of them", created, e.Subject(),
				e.Time(), e.DataContentType(), e.Data())
		}
		// id, type, aggregatetype, specversion, source, and the relay's three
		if got := headerList(d.record.Headers); len(got) != 8 {
			t.Errorf("created_at %q: got headers %q, want 8", created, got)
		}
	}
}
