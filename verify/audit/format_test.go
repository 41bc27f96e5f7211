package audit

import (
	"bytes"
	"testing"
)

// Breaks it catches: an envelope compared as it is, whitespace of a document lost, a message of another form that
// passes for an empty payload, a tombstone that becomes one.
func TestPayloadIsFoundInTheMessage(t *testing.T) {
	for _, c := range []struct{ format, payloadType, value, want string }{
		{"plain", "jsonb", `{"payload": 1}`, `{"payload": 1}`},
		{"cloudevents", "text", `{"payload": 1}`, `{"payload": 1}`},
		{"envelope", "jsonb", `{"id":"1","payload":{"a" : 1e400}}`, `{"a" : 1e400}`},
		{"envelope", "json", `{"id":"1","payload":null}`, `null`},
		{"envelope", "text", `{"id":"1","payload":"a\n\"b\""}`, "a\n\"b\""},
		{"envelope", "text", `{"id":"1","payload":""}`, ""},
		{"envelope", "bytea", `{"id":"1","payload":"+/8A"}`, "\xfb\xff\x00"},
		{"envelope", "text", `{"id":"1","payload":null}`, `{"id":"1","payload":null}`},
		{"envelope", "text", `{"id":"1","payload":5}`, `{"id":"1","payload":5}`},
		{"envelope", "bytea", `{"id":"1","payload":"?"}`, `{"id":"1","payload":"?"}`},
		{"envelope", "jsonb", `{"id":"1"}`, `{"id":"1"}`},
		{"envelope", "jsonb", `plain`, `plain`},
		{"json_schema", "jsonb", "\x00\x00\x00\x00\x07{}", `{}`},
		{"json_schema", "jsonb", "{}", "{}"},
		{"avro", "jsonb", "\x00\x00\x00\x00\x07\x02", string(encoded)},
		{"protobuf", "jsonb", "plain", "plain"},
	} {
		if got := payloadOf(c.format, c.payloadType, []byte(c.value)); string(got) != c.want || got == nil {
			t.Errorf("%s, %s, %s: got %q, want %q", c.format, c.payloadType, c.value, got, c.want)
		}
	}
	if got := payloadOf("envelope", "jsonb", nil); got != nil {
		t.Errorf("a tombstone: got %q, want nil", got)
	}
	if got := payloadOf("envelope", "json", []byte("{\"payload\":[1,\n 2]}")); !bytes.Equal(got, []byte("[1,\n 2]")) {
		t.Errorf("a document of two lines: got %q", got)
	}
}

// Breaks it catches: a tombstone that passes for a value in a format whose bytes nobody can compare, and the other way
// round. Seen to fail with tombstones taken for values.
func TestValuesBySchemasAreComparedAsValuesOrNone(t *testing.T) {
	for _, format := range []string{"avro", "protobuf"} {
		if got := payloadOf(format, "jsonb", nil); got != nil || expected(format, nil) != nil {
			t.Errorf("%s: a tombstone: got %q of the message, %q of the row", format, got, expected(format, nil))
		}
		if got := expected(format, []byte(`{"a": 1}`)); string(got) != string(encoded) {
			t.Errorf("%s: a row: got %q", format, got)
		}
	}
	if got := expected("json_schema", []byte(`{}`)); string(got) != `{}` {
		t.Errorf("json_schema: a row: got %q", got)
	}
}
