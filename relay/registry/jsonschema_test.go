package registry

import (
	"strings"
	"testing"
)

// Breaks it catches: bytes that are not the payload's own, a reference that is not found, a file or a network that a
// schema reads. Seen to fail with the library's own loader.
func TestJSONGoesOutAsItIsIfItFits(t *testing.T) {
	address := reference{"address.json", `{"type": "object", "required": ["street"]}`}
	for _, id := range []string{"", `"$id": "https://shop.example/order.json", `} {
		c := compiled(t, "json_schema", `{`+id+`"properties": {"n": {"type": "integer"}, "to": {"$ref": "address.json"}}}`,
			address)
		const payload = `{"n" :  1, "to": {"street": "x"}}`
		if got, err := c.append([]byte("kept"), "", []byte(payload)); err != nil || string(got) != "kept"+payload {
			t.Errorf("got %q, %v, want the payload as it is", got, err)
		}
		for payload, want := range map[string]string{`{"n": "4111"}`: "at /n rule type: it is string, and not integer",
			`{"to": {}}`: `at /to rule required: it lacks "street"`, `{`: "it is not JSON"} {
			if _, err := c.append(nil, "", []byte(payload)); err == nil || err.Error() != want {
				t.Errorf("%s: got %v, want %s", payload, err, want)
			}
		}
	}
	for _, elsewhere := range []string{"file:///etc/hostname", "https://example.com/x.json", "missing.json"} {
		_, err := compileJSONSchema(`{"$ref": "`+elsewhere+`"}`, nil)
		if err == nil || !strings.Contains(err.Error(), "neither in the schema nor among its references") {
			t.Errorf("%s: got %v, want it read from nowhere", elsewhere, err)
		}
	}
}
