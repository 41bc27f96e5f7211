package schemas_test

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/message/schemas"
)

// Breaks it catches: a reference by a name that is not found, a schema of another draft than registries take it for, a
// file that is read. Seen to fail with the library's own loader, with draft 2020-12 for what has no $schema, and
// with one place for a schema without an $id.
func TestASchemaIsMadeOfItsTextAndTheOthersThatItNames(t *testing.T) {
	const list = `{"items": [{"type": "integer"}], "additionalItems": false, "properties": {"to": {"$ref": "a.json"}}}`
	s, err := schemas.Compile(list, map[string]string{"a.json": `{"type": "object"}`})
	if err != nil {
		t.Fatal(err)
	}
	for payload, want := range map[string]string{`[1]`: "", `[1, 2]`: "at / rule additionalItems", `{"to": {}}`: "",
		`{"to": "4111"}`: "at /to rule type: it is string, and not object", `{`: "it is not JSON"} {
		if got := s.Misfit([]byte(payload)); got != want {
			t.Errorf("%s: got %q, want %q", payload, got, want)
		}
	}
	far := map[string]string{"./schema.json": `{"$ref": "_schema.json"}`, "_schema.json": `{"type": "object"}`}
	s, err = schemas.Compile(`{"properties": {"to": {"$ref": "schema.json"}}}`, far)
	if err != nil || s.Misfit([]byte(`{"to": {}}`)) != "" || s.Misfit([]byte(`{"to": 1}`)) == "" {
		t.Errorf("another named like the schema itself: got %v, want both used", err)
	}
	for schema, want := range map[string]string{`{`: "read the schema", `{"$ref": "b.json"}`: "neither in the schema",
		`{"$ref": "file:///etc/hostname"}`: "neither in the schema", `{"type": "objekt"}`: "not valid"} {
		if _, err := schemas.Compile(schema, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", schema, err, want)
		}
	}
}
