package message

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Breaks it catches: headers read in the short way that encoding/json reads otherwise, or refuses. Seen to fail with an
// escape, a control character and invalid UTF-8 taken as they are, a second comma, text behind the object.
func FuzzHeadersAreReadAsEncodingJSONReadsThem(f *testing.F) {
	for _, text := range []string{
		`{}`, ` { } `, `{} {}`, `{}x`, `{`, ``, ` `, `null`, `[]`, `"a"`,
		`{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}`, `{"a": "1", "b": "2"}`,
		"\t{\"a\"\r:\n\"1\" ,\"b\":\"2\"\n}\r\n", `{"a": "1",}`, `{,"a": "1"}`, `{"a": "1",, "b": "2"}`, `{"a" "1"}`,
		`{"a", "1"}`, `{"a": "1"`, `{"a": "1"}}`, `{"a": "1"} 7`, `{"a": "1" "b": "2"}`, `{"a": 1}`, `{"a": null}`,
		`{"a": {"b": "c"}}`, `{"a": ["b"]}`, `{"a\"b": "\\\n\u00e4\ud83d\ude00"}`, `{"ä": "😀"}`, "{\"a\": \"\xff\"}",
		"{\"\xc3\": \"b\"}", "{\"a\": \"\x00\"}", "{\"a\": \"\n\"}", "{\"a\": \"\x7f\"}", `{"a": "1", "a": "2"}`,
		`{"": ""}`, `{"id": "mine", "X-Outbox-Late": "1", "a": "1"}`, "\ufeff{}", "\v{}",
		"{" + strings.Repeat(`"a": "b", `, mostPlain-1) + `"a": "b"}`,
		"{" + strings.Repeat(`"a": "b", `, mostPlain) + `"a": "b"}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		read := func(by func(*Encoder, *outbox.Headers, []byte) error) (outbox.Headers, string) {
			shadowed := 0
			x := &Encoder{reserved: []string{"id"}, hooks: Hooks{Shadowed: func() { shadowed++ }}}
			var h outbox.Headers
			err := by(x, &h, text)
			return h, fmt.Sprint(shadowed, " shadowed; ", err)
		}
		got, said := read((*Encoder).rowHeaders)
		want, wantSaid := read((*Encoder).anyHeaders)
		if said != wantSaid {
			t.Fatalf("got %s, want %s", said, wantSaid)
		}
		if strings.HasSuffix(said, "<nil>") && (got.Len() != want.Len() || !bytes.Equal(got.Block(), want.Block())) {
			t.Fatalf("got %v, want %v", headerList(got), headerList(want))
		}
	})
}

// Break it catches: the short way taken never, or memory of an event kept by who has read its headers. Seen to
// fail with each.
func TestHeadersOfPlainStringsAreReadWithoutACopy(t *testing.T) {
	x, text := new(Encoder), []byte(`{"tenant": "acme", "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-01"}`)
	block := make([]byte, 0, 256)
	if per := testing.AllocsPerRun(100, func() {
		h := outbox.HeadersIn(block)
		if err := x.rowHeaders(&h, text); err != nil || h.Len() != 2 {
			t.Fatalf("got %d headers, %v", h.Len(), err)
		}
	}); per != 0 {
		t.Errorf("got %v allocations, want none", per)
	}
	for n, s := range x.plain[:cap(x.plain)] {
		if s != nil {
			t.Errorf("string %d of the event is kept: %s", n, s)
		}
	}
}
