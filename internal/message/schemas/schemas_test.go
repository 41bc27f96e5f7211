package schemas_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/message/schemas"
)

// directory holds the files.
func directory(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const (
	placed = `{"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
		"required": ["order_id", "items"], "additionalProperties": false, "properties": {
		"order_id": {"type": "string", "format": "uuid"}, "note": {"type": ["string", "null"], "maxLength": 20},
		"card": {"enum": ["visa"]}, "code": {"pattern": "^[A-Z]+$"}, "to": {"$ref": "address.json"},
		"items": {"type": "array", "minItems": 1, "items": {"type": "object", "properties": {
			"price": {"type": "number", "minimum": 0}, "a/b~c": {"type": "integer"}}}}}}`
	address = `{"type": "object", "required": ["street"], "properties": {"street": {"type": "string"}}}`
	id      = `"order_id": "019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01"`
)

// Breaks it catches: a payload that breaks a rule and passes, one that fits and does not, a reason that does not name
// path and rule, or has a value of the payload, which logs must not have. Seen to fail with the library's own sentences
// (values), with the first error that has causes (paths), and without the assertion of formats.
func TestPayloadsAreHeldToTheSchemaOfTheirType(t *testing.T) {
	set, err := schemas.Load(directory(t, map[string]string{"OrderPlaced.json": placed, "address.json": address,
		"README.md": "none of them", ".hidden.json": "{"}))
	if err != nil {
		t.Fatal(err)
	}
	for payload, want := range map[string]string{
		`{` + id + `, "items": [{"price": 1.5}], "note": null, "to": {"street": "x"}}`: "",
		`{` + id + `, "items": [{"price": 123456789012345678901234567890.5}]}`:         "",
		`{}`:                        `at / rule required: it lacks "order_id", "items"`,
		`[]`:                        "at / rule type: it is array, and not object",
		`null`:                      "at / rule type: it is null, and not object",
		`{` + id + `, "items": []}`: "at /items rule minItems",
		`{` + id + `, "items": [{"price": "9"}]}`:                                    "at /items/0/price rule type: it is string, and not number",
		`{` + id + `, "items": [{}, {"price": -1}]}`:                                 "at /items/1/price rule minimum",
		`{` + id + `, "items": [{"a/b~c": 1.5}]}`:                                    "at /items/0/a~1b~0c rule type",
		`{` + id + `, "items": [{}], "to": {}}`:                                      `at /to rule required: it lacks "street"`,
		`{` + id + `, "items": [{}], "secret": 1}`:                                   `at / rule additionalProperties: "secret"`,
		`{` + id + `, "items": [{}], "card": "4111"}`:                                "at /card rule enum",
		`{` + id + `, "items": [{}], "code": "4111"}`:                                "at /code rule pattern",
		`{"order_id": "4111", "items": [{}]}`:                                        "at /order_id rule format: it is no uuid",
		`{"order_id": "4111", "items": [{"price": -1}, {"price": -2}]}`:              ", and 2 more",
		`{` + id + `, "note": "4111` + strings.Repeat("x", 20) + `", "items": [{}]}`: "at /note rule maxLength",
		`{"order_id"`: "not JSON",
		`{} {}`:       "not JSON",
	} {
		got := set.Check([]byte("OrderPlaced"), []byte(payload))
		if (got == "") != (want == "") || !strings.Contains(got, want) || strings.Contains(got, "4111") ||
			got != "" && !strings.Contains(got, "OrderPlaced") {
			t.Errorf("%s: got %q, want %q", payload, got, want)
		}
	}
	for name, got := range map[string]string{"a type without a schema": set.Check([]byte("Other"), []byte("{}")),
		"no type": set.Check(nil, []byte("{}")), "a tombstone": set.Check([]byte("OrderPlaced"), nil)} {
		if got != "" {
			t.Errorf("%s: got %q, want it to pass", name, got)
		}
	}
	many := `{` + id + `, "items": [{}]`
	for _, c := range "abcdefgh" {
		many += `, "` + strings.Repeat(string(c), 500) + `": 1`
	}
	if got := set.Check([]byte("OrderPlaced"), []byte(many+"}")); len(got) > 1000 || !strings.Contains(got, "and 3 more") {
		t.Errorf("a reason of %d bytes: %.100s", len(got), got)
	}
}

// Breaks it catches: a file that is not a schema and is passed over, a second problem that is left out, a schema that
// is fetched from a network. Seen to fail with the first problem returned at once.
func TestWhatCannotBeCompiledIsToldAtOnce(t *testing.T) {
	_, err := schemas.Load(directory(t, map[string]string{"a.json": `{"type": "objekt"}`, "b.json": `{`, "c.json": `{}`,
		"d.json": `{"$ref": "https://example.com/x.json"}`, "e.json": `{"$ref": "missing.json"}`,
		"f.json": `{"pattern": "("}`}))
	if err == nil {
		t.Fatal("got no error")
	}
	for _, name := range []string{"a", "b", "d", "e", "f"} {
		if !strings.Contains("\n"+err.Error(), "\n"+name+".json: ") {
			t.Errorf("nothing is said of %s.json: %v", name, err)
		}
	}
	if lines := strings.Split(err.Error(), "\n"); len(lines) != 5 {
		t.Errorf("got %d lines, want 5: %v", len(lines), err)
	}
	for _, dir := range []string{filepath.Join(t.TempDir(), "none"), t.TempDir()} {
		if _, err := schemas.Load(dir); err == nil {
			t.Errorf("%s: got no error", dir)
		}
	}
	if set, err := schemas.Load(""); set != nil || err != nil {
		t.Errorf("without a directory: got %v, %v", set, err)
	}
}

// BenchmarkCheck is the price of a small payload, and of larger ones: it goes with the number of values, not of bytes.
func BenchmarkCheck(b *testing.B) {
	set, err := schemas.Load(directory(b, map[string]string{"OrderPlaced.json": placed, "address.json": address}))
	if err != nil {
		b.Fatal(err)
	}
	for name, items := range map[string]string{
		"100B":             strings.Repeat(`{"price": 12.5},`, 2),
		"1kB, 3 values":    `{"price": 12.5, "text": "` + strings.Repeat("x", 900) + `"},`,
		"1kB, 60 values":   strings.Repeat(`{"price": 12.5},`, 58),
		"10kB, 600 values": strings.Repeat(`{"price": 12.5},`, 600),
	} {
		payload := []byte(`{` + id + `, "items": [` + items + `{}]}`)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			for b.Loop() {
				if why := set.Check([]byte("OrderPlaced"), payload); why != "" {
					b.Fatal(why)
				}
			}
		})
	}
}
