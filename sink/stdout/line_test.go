package stdout

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Scripts read these lines. Breaks it catches: a name that changes, a tombstone that looks like the JSON null, text
// that looks like JSON, bytes that are replaced, a document of several lines that breaks its line, numbers that lose
// digits.
func TestLines(t *testing.T) {
	const before = `{"topic":"t","partition":3,"offset":9,"timestamp":"2023-11-14T22:13:20.123Z",`
	var headers outbox.Headers
	headers.Add("id", []byte("7"))
	headers.Add("a", nil)
	headers.Add("a", []byte{0xff})
	headers.Add("empty", []byte{})
	for _, c := range []struct {
		name       string
		key, value []byte
		headers    outbox.Headers
		want       string
	}{
		{"document", []byte("k"), []byte("{\n  \"b\": 12345678901234567890, \"a\": \"<&>\"\r\n}"), outbox.Headers{},
			`"key":"k","headers":[],"value":{"b":12345678901234567890,"a":"<&>"}}`},
		{"tombstone", []byte("k"), nil, outbox.Headers{}, `"key":"k","headers":[],"value":null,"tombstone":true}`},
		{"JSON null", []byte("k"), []byte("null"), outbox.Headers{}, `"key":"k","headers":[],"value":null}`},
		{"text", []byte("k"), []byte("a \"b\"\n"), outbox.Headers{},
			`"key":"k","headers":[],"value":"a \"b\"\n","encoding":"text"}`},
		{"JSON string", []byte("k"), []byte(`"a"`), outbox.Headers{}, `"key":"k","headers":[],"value":"a"}`},
		{"no number", []byte("k"), []byte("007"), outbox.Headers{},
			`"key":"k","headers":[],"value":"007","encoding":"text"}`},
		{"empty", []byte{}, []byte{}, outbox.Headers{}, `"key":"","headers":[],"value":"","encoding":"text"}`},
		{"bytes", []byte{0xfe}, []byte{'"', 0xff, '"'}, outbox.Headers{},
			`"key":"/g==","key_encoding":"base64","headers":[],"value":"Iv8i","encoding":"base64"}`},
		{"headers, no key", nil, []byte("1"), headers,
			`"key":null,"headers":[{"key":"id","value":"7"},{"key":"a","value":null},{"key":"a","value":"/w==","encoding":"base64"},{"key":"empty","value":""}],"value":1}`},
	} {
		r := &sink.Record{Topic: "t", Key: c.key, Value: c.value, Headers: c.headers, Timestamp: 1_700_000_000_123}
		if diff := cmp.Diff(before+c.want+"\n", string(appendLine(nil, r, 3, 9))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}
