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

// Breaks it catches: a tombstone that passes for a value in a format whose bytes no one can compare, and the other way
// round. Seen to fail with tombstones taken for values.
func TestValuesBySchemasAreComparedAsValuesOrNone(t *testing.T) {
	for _, format := range []string{"avro", "protobuf"} {
		if got := payloadOf(format, "jsonb", nil); got != nil || expected(format, "jsonb", nil) != nil {
			t.Errorf("%s: a tombstone: got %q of the message, %q of the row", format, got, expected(format, "jsonb", nil))
		}
		if got := expected(format, "jsonb", []byte(`{"a": 1}`)); string(got) != string(encoded) {
			t.Errorf("%s: a row: got %q", format, got)
		}
	}
	if got := expected("json_schema", "jsonb", []byte(`{}`)); string(got) != `{}` {
		t.Errorf("json_schema: a row: got %q", got)
	}
}

// Breaks it catches: the white space around a document, which the column keeps and an envelope does not, called a
// difference; white space that is a text's own, or inside of a document, not compared. Seen to fail with the row's
// payload as it is, and with each type trimmed.
func TestWhiteSpaceAroundADocumentIsNotTheDocuments(t *testing.T) {
	for _, c := range []struct{ format, payloadType, payload, value string }{
		{"envelope", "json", " \r\n\t{\"a\" : 1} \n", "{\"payload\": \r\n\t{\"a\" : 1} \n}"},
		{"envelope", "text", " a ", `{"payload":" a "}`},
		{"plain", "json", " {} ", " {} "},
	} {
		got := payloadOf(c.format, c.payloadType, []byte(c.value))
		if want := expected(c.format, c.payloadType, []byte(c.payload)); !bytes.Equal(got, want) {
			t.Errorf("%s, %s: got %q of the message, %q of the row", c.format, c.payloadType, got, want)
		}
	}
	for _, c := range [][2]string{{"envelope", "text"}, {"plain", "json"}} {
		if got := expected(c[0], c[1], []byte(" {} ")); string(got) != " {} " {
			t.Errorf("%s, %s: got %q, want it as it is", c[0], c[1], got)
		}
	}
}
