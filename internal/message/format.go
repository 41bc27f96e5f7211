package message

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// format implements a message.format: the value, and the names and constants of its headers. In every
// format SQL NULL is a tombstone: a consumer, and a compacted topic, can tell "deleted" by the value alone.
type format struct {
	name    string      // config.FormatPlain, …
	payload payloadForm // of the payload column
	builds  bool        // a value that is not the payload's own bytes
	isJSON  bool        // values are JSON documents, but those that a registry's schema encodes

	source, contentType []byte // CloudEvents: values of ce_source and content-type
}

// payloadForm classifies the bytes of the payload column.
type payloadForm uint8

const (
	jsonPayload   payloadForm = iota // a document that Postgres has checked
	textPayload                      // any text
	binaryPayload                    // any bytes
)

// newFormat takes the type of the payload column as store.Outbox has it: jsonb, json, text or bytea.
func newFormat(c config.Config, payloadType string) (format, error) {
	f := format{name: c.Message.Format, builds: c.Message.Format == config.FormatEnvelope || c.Message.NeedsRegistry()}
	switch payloadType {
	case "jsonb", "json":
		f.payload, f.contentType = jsonPayload, []byte("application/json")
	case "text":
		f.payload, f.contentType = textPayload, []byte("text/plain; charset=utf-8")
	case "bytea":
		f.payload, f.contentType = binaryPayload, []byte("application/octet-stream")
	default:
		return f, fmt.Errorf("message.format: no format for a payload column of type %q", payloadType)
	}
	f.isJSON = f.payload == jsonPayload || f.name == config.FormatEnvelope
	schema, table := config.SplitTable(c.Outbox.Table)
	f.source = []byte("/cdc-relay/" + url.PathEscape(c.Service) + "/" + url.PathEscape(schema+"."+table))
	return f, nil
}

// value is the record's value: in plain and cloudevents the payload's own bytes.
func (x *Encoder) value(e *outbox.Event, topic string) ([]byte, *sink.Reason) {
	if x.format.name == config.FormatPlain {
		return e.Payload, nil
	}
	if x.registered.on {
		return x.registeredValue(e, topic)
	}
	if reason := x.format.check(e); reason != nil {
		return nil, reason
	}
	if x.format.name == config.FormatEnvelope && e.Payload != nil {
		return x.envelope(e), nil
	}
	return e.Payload, nil
}

// check refuses what JSON, or a header that CloudEvents defines, cannot carry. Bytes that are not UTF-8 come from
// databases with another encoding, such as SQL_ASCII; replacing them silently would change the event.
func (f *format) check(e *outbox.Event) *sink.Reason {
	if f.payload != binaryPayload && !utf8.Valid(e.Payload) {
		return permanent("INVALID_PAYLOAD", "message.format is "+f.name+
			", which needs UTF-8, and the payload is not valid UTF-8; a column of type bytea can hold it")
	}
	for _, text := range [...]struct {
		name  string
		value []byte
	}{{"id", e.ID}, {"event type", e.EventType}, {"aggregate type", e.AggregateType}, {"aggregate id", e.AggregateID}} {
		if !utf8.Valid(text.value) {
			return permanent("INVALID_ATTRIBUTE",
				"message.format is "+f.name+", which needs UTF-8, and the "+text.name+" is not valid UTF-8")
		}
	}
	if f.name == config.FormatCloudEvents && (len(e.ID) == 0 || len(e.EventType) == 0) {
		return permanent("INVALID_ATTRIBUTE",
			"a CloudEvent must have an id and a type, and this event's id or event type is NULL or empty")
	}
	return nil
}

// cloudEvent adds the context attributes that have no column of their own (CloudEvents 1.0, "Context Attributes"; Kafka
// Protocol Binding 1.0, "Binary Content Mode"). A tombstone has no data and so no content type.
func (f *format) cloudEvent(h *outbox.Headers, e *outbox.Event) {
	h.Add(config.CloudEventVersion, cloudEventsVersion)
	h.Add(config.CloudEventSource, f.source)
	if len(e.AggregateID) > 0 { // an attribute that is present must not be empty
		h.Add(config.CloudEventSubject, e.AggregateID)
	}
	if e.Payload != nil {
		h.Add(config.CloudEventContentType, f.contentType)
	}
}

var cloudEventsVersion = []byte("1.0")

// envelopeSize bounds the envelope's fixed text and its timestamp, in bytes.
const envelopeSize = 160

// envelope writes the event as one JSON object into the arena. Text that needs many escapes can outgrow the room that
// is reserved; append moves it then.
func (x *Encoder) envelope(e *outbox.Event) []byte {
	payload := len(e.Payload)
	if x.format.payload == binaryPayload {
		payload = base64.StdEncoding.EncodedLen(payload)
	}
	size := envelopeSize + len(e.ID) + len(e.EventType) + len(e.AggregateType) + len(e.AggregateID) + payload
	return x.arena.placeUpTo(size, func(b []byte) []byte {
		b = appendString(append(b, `{"id":`...), e.ID)
		b = appendString(append(b, `,"type":`...), e.EventType)
		b = appendString(append(b, `,"aggregate_type":`...), e.AggregateType)
		b = appendString(append(b, `,"aggregate_id":`...), e.AggregateID)
		b = appendTime(append(b, `,"occurred_at":`...), e.CreatedAt)
		b = append(b, `,"payload":`...)
		switch x.format.payload {
		case jsonPayload:
			b = append(b, e.Payload...)
		case textPayload:
			b = appendString(b, e.Payload)
		case binaryPayload:
			b = append(b, '"')
			b = base64.StdEncoding.AppendEncode(b, e.Payload)
			b = append(b, '"')
		}
		return append(b, '}')
	})
}

// appendTime appends a JSON string in RFC 3339, or null where there is no such time: NULL, infinity, the year 10000.
func appendTime(b, stamp []byte) []byte {
	var text [64]byte
	_, err := outbox.ParseTimestamp(stamp)
	t, ok := rfc3339(text[:0], stamp, err == nil)
	if !ok {
		return append(b, "null"...)
	}
	b = append(b, '"')
	b = append(b, t...)
	return append(b, '"')
}

// appendString appends a JSON string (RFC 8259, section 7), null for NULL. The text must be valid UTF-8.
func appendString(b, text []byte) []byte {
	if text == nil {
		return append(b, "null"...)
	}
	const hex = "0123456789abcdef"
	b = append(b, '"')
	done := 0
	for i, c := range text {
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		b = append(b, text[done:i]...)
		done = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, `\n`...)
		case '\r':
			b = append(b, `\r`...)
		case '\t':
			b = append(b, `\t`...)
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xF])
		}
	}
	b = append(b, text[done:]...)
	return append(b, '"')
}
