package registry

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/message/schemas"
)

// Schemas that refer to themselves, and in which numbers have rules.
const (
	tree = `{"type": "record", "name": "Node", "fields": [
		{"name": "n", "type": ["null", "long", "double", {"type": "bytes", "logicalType": "decimal", "precision": 9}],
			"default": null},
		{"name": "list", "type": {"type": "array", "items": "Node"}, "default": []},
		{"name": "byName", "type": {"type": "map", "values": "Node"}, "default": {}},
		{"name": "next", "type": ["null", "Node"], "default": null}]}`
	// twins takes time exponential in the depth of a payload: both branches are tried at each level.
	twins = `{"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null",
		{"type": "record", "name": "A", "fields": [{"name": "next", "type": ["null", "A", {"type": "record", "name": "B",
			"fields": [{"name": "next", "type": ["null", "A", "B"]}, {"name": "y", "type": "int"}]}]},
			{"name": "x", "type": "int"}]}, "B"]}]}`
	protoTree = `syntax = "proto3"; import "google/protobuf/struct.proto"; import "google/protobuf/any.proto";
		message Node { int64 n = 1; double d = 2; repeated Node list = 3; map<string, Node> by_name = 4; Node next = 5;
			google.protobuf.Value free = 6; google.protobuf.Any any = 7; bytes raw = 8; }`
	jsonTree = `{"$ref": "#/definitions/n", "definitions": {"n": {"type": ["object", "array", "number", "string", "null"],
		"multipleOf": 0.01, "minimum": -5, "uniqueItems": true, "additionalProperties": {"$ref": "#/definitions/n"},
		"items": {"anyOf": [{"$ref": "#/definitions/n"}, {"enum": [1, 2, {"a": []}]}]}}}}`
)

var bombed = []struct{ format, text string }{
	{"avro", tree}, {"avro", order}, {"protobuf", protoTree}, {"json_schema", jsonTree}, {"avro", twins},
}

// bombs are payloads that ask for more than their size.
func bombs() map[string]string {
	nested := func(open, inner, shut string, n int) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(shut, n)
	}
	const anyOf = `{"@type": "x/Node", "any":`
	all := map[string]string{
		"number": `{"n": 1e999999999}`, "negative exponent": `{"n": 1e-999999999}`, "in a string": `{"n": "1e999999999"}`,
		"many numbers": `{"list": [` + strings.Repeat(`{"n": 1e1000000},`, 20_000) + `{}]}`,
		"digits":       `{"n": ` + strings.Repeat("9", 1<<20) + `}`,
		"lists":        nested("[", "", "]", 100_000), "nodes": nested(`{"next":`, "{}", "}", 9_999),
		"free": `{"free":` + nested("[", "", "]", 9_999) + "}", "maps": nested(`{"byName":{"a":`, "{}", "}}", 4_999),
		"any":      `{"any":` + nested(anyOf, `{"@type": "x/Node"}`, "}", 90) + "}",
		"deep any": `{"any":` + nested(anyOf, `{"@type": "x/Node"}`, "}", 4_000) + "}",
		"large any": `{"any":` + nested(anyOf, `{"@type": "x/Node", "raw": "`+strings.Repeat("A", 16<<20)+`"}`, "}",
			80) + "}",
		"truncated": nested(`{"next":`, "", "", 50_000),
	}
	var wide strings.Builder
	for i := range 400_000 {
		fmt.Fprintf(&wide, `"k%d":{},`, i)
	}
	all["wide map"] = `{"byName": {` + wide.String() + `"z": {}}}`
	return all
}

// cpu is what this process has taken so far. Tests that run beside others take theirs later.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Breaks it catches: a payload of any format that ends the process, or one of some kilobytes that takes seconds.
// Seen to fail without Measure and with the library's limit of 10,000 levels: 1e999999999 is a nil dereference in
// json_schema, the deep Any takes 4.7 s.
func TestNoPayloadIsABomb(t *testing.T) {
	const most = 4 * time.Second // of CPU, which a busy machine does not stretch; the slowest takes 0.2 s
	for name, payload := range bombs() {
		for _, s := range bombed {
			began := cpu(t)
			_, err := compiled(t, s.format, s.text).append(nil, "", []byte(payload))
			if took := cpu(t) - began; took > most {
				t.Errorf("%s of %s: took %v", name, s.format, took)
			} else {
				t.Logf("%s of %s: %v, %.80v", name, s.format, took, err)
			}
		}
	}
}

// Breaks it catches: a union of records that refer to themselves, with which one payload of some hundred bytes stops
// the stream. Seen to fail (it had not ended after 30 seconds) without the steps.
func TestAvroUnionsEndWhenTheirTimeIsOver(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes the whole time that a payload has")
	}
	payload := strings.Repeat(`{"next":`, 60) + `"no record"` + strings.Repeat("}", 60)
	defer func() {
		if _, is := recover().(*schemas.TooLong); !is {
			t.Error("got no *schemas.TooLong")
		}
	}()
	_, err := compiled(t, "avro", twins).append(nil, "", []byte(payload))
	t.Errorf("got %v, want the work given up", err)
}

// FuzzPayloads looks for a payload of any format and schema that panics, or takes longer than its bytes explain.
func FuzzPayloads(f *testing.F) {
	for _, payload := range bombs() {
		if len(payload) < 1<<16 {
			for i := range bombed {
				f.Add(i, []byte(payload))
			}
		}
	}
	for i := range bombed {
		f.Add(i, placed(f, `{}`))
		f.Add(i, []byte(`{"n": 1.5, "list": [{"next": {"n": null}}], "byName": {"a": {}}, "free": [1, "a", {"b": null}]}`))
	}
	codecs := make([]codec, len(bombed))
	for i, s := range bombed {
		codecs[i] = compiled(f, s.format, s.text)
	}
	f.Fuzz(func(t *testing.T, which int, payload []byte) {
		c := codecs[uint(which)%uint(len(codecs))]
		defer func() {
			if value := recover(); value != nil {
				if err, is := value.(error); !is || !errors.As(err, new(*schemas.TooLong)) {
					panic(value)
				}
			}
		}()
		began := time.Now()
		out, err := c.append([]byte("dst"), "", payload)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("took %v for %d bytes", took, len(payload))
		}
		if err == nil && (len(out) < 3 || string(out[:3]) != "dst" || len(out) > 20*len(payload)+1000) {
			t.Errorf("%d bytes of %d", len(out), len(payload))
		}
	})
}
