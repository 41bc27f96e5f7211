package schemas

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// onlySchema compiles a schema and gives the work on one payload less time than users have.
func onlySchema(t testing.TB, text string) *Schema {
	t.Helper()
	s, err := Compile(text, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.effort.effort.most = 200 * time.Millisecond
	return s
}

// Breaks it catches: numbers whose digits take a gigabyte or which the library cannot read at all (it dereferences
// nil), depths that end the process with a stack overflow, more values than memory has room for. Seen to fail (a
// panic, and 84 s for 20,000 numbers) without Measure.
func TestPayloadsAreBoundedBeforeTheyAreValidated(t *testing.T) {
	s := onlySchema(t, `{"type": ["object", "array"], "additionalProperties": {"multipleOf": 3, "minimum": 0},
		"items": {"anyOf": [{"type": "array"}, {"type": "integer"}]}}`)
	for payload, want := range map[string]string{
		`{"n": 1e999999999}`: "exponent beyond", `{"n": -1E-999999999}`: "exponent beyond",
		`{"n": 1e99999999999999999999}`: "exponent beyond", `{"n": 3e1000}`: "", `{"n": 3e1001}`: "exponent beyond",
		`[` + strings.Repeat("1e1000000,", 20_000) + `1]`:     "exponent beyond",
		`{"n": 1` + strings.Repeat("0", 100_000) + `}`:        "number of 100001 digits",
		strings.Repeat("[", 9000) + strings.Repeat("]", 9000): "nested 9000 levels",
		strings.Repeat("[", 900) + strings.Repeat("]", 900):   "",
		"[" + strings.Repeat("1,", 2_000_000) + "1]":          "2000002 values",
		`{"1e999999999": 3, "b": 3}`:                          "",
		`{"\\\"1e999999999": 3}`:                              "",
		`{"a\\": 1e999999999}`:                                "exponent beyond",
	} {
		if got := s.Misfit([]byte(payload)); !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("%.40s: got %q, want %q", payload, got, want)
		}
	}
}

// Breaks it catches: a schema that takes exponential time, and with which the stream stands still. Seen to fail (it had
// not ended after 20 seconds) with the schema of the library's compiler as it comes, and without AssertVocabs.
func TestValidationEndsWhenItsTimeIsOver(t *testing.T) {
	const twice = `{"$ref": "#/definitions/n"}`
	text := `{"definitions": {"n": {"anyOf": [{"properties": {"c": ` + twice + `}, "required": ["x"]},
		{"properties": {"c": ` + twice + `}, "required": ["y"]}]}}, "$ref": "#/definitions/n"}`
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "made.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	set.byType["made"].effort.effort.most = 200 * time.Millisecond
	deep := []byte(strings.Repeat(`{"c":`, 200) + "{}" + strings.Repeat("}", 200))
	for name, check := range map[string]func(){
		"of a registry":  func() { onlySchema(t, text).Misfit(deep) },
		"of a directory": func() { set.Check([]byte("made"), deep) },
	} {
		func() {
			defer func() {
				if _, is := recover().(*TooLong); !is {
					t.Errorf("%s: got no *TooLong", name)
				}
			}()
			check()
		}()
		if why := set.Check([]byte("made"), []byte(`{"x": 1, "y": 1}`)); why != "" {
			t.Errorf("%s: the next payload: got %q, want it to fit", name, why)
		}
	}
}
