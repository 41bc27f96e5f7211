package record

import (
	"errors"
	"testing"
)

// The examples of RFC 7396, appendix A, that are objects, and what else a payload may hold. Breaks caught: a member
// that is not removed, or set to null; a patch of a patch; numbers that lose digits, text that gains escapes; bytes
// that change though nothing else does.
func TestPatchMergesObjects(t *testing.T) {
	for _, c := range []struct{ was, patch, want string }{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`{"e":null}`, `{"a":1}`, `{"a":1,"e":null}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{`{"n":12345678901234567890.10,"t":"<&>"}`, `{"a":1e400}`, `{"a":1e400,"n":12345678901234567890.10,"t":"<&>"}`},
		{`{ "z": 1, "a": {"b": 2} }`, `{"a":{"b":2,"c":null}}`, `{ "z": 1, "a": {"b": 2} }`},
	} {
		p := Patch{Payload: []byte(c.patch)}
		got, _, changed, err := p.Apply([]byte(c.was), nil)
		if err != nil || string(got) != c.want || changed != (c.was != c.want) {
			t.Errorf("%s with %s: got %s, changed: %v, %v; want %s", c.was, c.patch, got, changed, err, c.want)
		}
		if again, _, changed, err := p.Apply(got, nil); err != nil || changed || string(again) != c.want {
			t.Errorf("%s with %s, twice: got %s, changed: %v, %v", c.was, c.patch, again, changed, err)
		}
	}
}

// Breaks caught: a payload that is no object and is replaced by the patch; a tombstone that is none; headers that are
// made where there were none, or lost with the payload's patch.
func TestPatchChangesPayloadAndHeaders(t *testing.T) {
	for _, was := range []string{`[1]`, `"a"`, `null`, ``, `{} {}`, `{`, "\xff"} {
		if _, _, _, err := (Patch{Payload: []byte(`{"a":1}`)}).Apply([]byte(was), nil); !errors.Is(err, ErrEdit) {
			t.Errorf("the payload %q: got %v, want %v", was, err, ErrEdit)
		}
	}
	p := Patch{Tombstone: true, Headers: []byte(`{"tenant":"b","old":null}`)}
	payload, headers, changed, err := p.Apply([]byte(`[1]`), nil)
	if err != nil || payload != nil || string(headers) != `{"tenant":"b"}` || !changed {
		t.Errorf("got %q, %s, changed: %v, %v; want a tombstone with one header", payload, headers, changed, err)
	}
	if _, headers, changed, err = p.Apply(nil, headers); err != nil || changed || string(headers) != `{"tenant":"b"}` {
		t.Errorf("twice: got %s, changed: %v, %v", headers, changed, err)
	}
	if _, headers, changed, err = (Patch{Headers: []byte(`{"old":null}`)}).Apply(nil, nil); err != nil || changed ||
		headers != nil {
		t.Errorf("headers to remove where there are none: got %q, changed: %v, %v", headers, changed, err)
	}
}

// Breaks caught: a patch that changes nothing and looks as if it had; a header that no message can have.
func TestPatchThatNoDeadLetterCanTakeIsRefused(t *testing.T) {
	for name, p := range map[string]Patch{
		"nothing":              {},
		"both":                 {Payload: []byte(`{}`), Tombstone: true},
		"a list":               {Payload: []byte(`[]`)},
		"null":                 {Headers: []byte(`null`)},
		"more than one":        {Headers: []byte(`{} {}`)},
		"a header that counts": {Headers: []byte(`{"a":1}`)},
	} {
		if err := p.Check(); !errors.Is(err, ErrEdit) {
			t.Errorf("%s: got %v, want %v", name, err, ErrEdit)
		}
	}
	if err := (Patch{Payload: []byte(`{"a":1}`), Headers: []byte(`{"a":"1","b":null}`)}).Check(); err != nil {
		t.Error(err)
	}
}
