package registry

import (
	"encoding/hex"
	"strings"
	"testing"
)

const shop = `syntax = "proto3"; package shop;
import "google/protobuf/timestamp.proto";
import "address.proto";
message Placed { string id = 1; int64 n = 2; Address to = 3; google.protobuf.Timestamp at = 4;
	message Line { int32 price = 1; } repeated Line lines = 5; map<string, int32> counts = 6; bytes raw = 7; }
message Paid { string id = 1; }`

// The bytes are those of Confluent's description of its wire format. Breaks it catches: another message, indexes that
// name another one, a map in no order. Seen to fail with the indexes of the first message written at length, and
// without the deterministic order.
func TestJSONBecomesProtobufByTheSchema(t *testing.T) {
	c := compiled(t, "protobuf", shop,
		reference{"address.proto", `syntax = "proto3"; package shop; message Address { string street = 1; }`})
	for _, x := range []struct{ record, payload, want string }{
		{"", `{}`, "00"},
		{"", `{"id": "a", "n": "5", "to": {"street": "s"}, "at": "1970-01-01T00:00:01Z", "lines": [{"price": 1}],
			"counts": {"b": 2, "a": 1}, "raw": "/w=="}`,
			"00" + "0a0161" + "1005" + "1a030a0173" + "22020801" + "2a020801" + "32050a01611001" + "32050a01621002" +
				"3a01ff"},
		{"shop.Placed", `{"n": 5}`, "00" + "1005"},
		{"shop.Paid", `{"id": "a"}`, "0202" + "0a0161"},
		{"shop.Placed.Line", `{"price": 1}`, "040000" + "0801"},
	} {
		for range 3 {
			got, err := c.append([]byte{}, x.record, []byte(x.payload))
			if err != nil || hex.EncodeToString(got) != x.want {
				t.Errorf("%s %s: got %x, %v, want %s", x.record, x.payload, got, err, x.want)
			}
		}
	}
}

// The compiler makes a message of each map, and Java counts none. Break it catches: an index by which Java reads
// another message. Seen to fail with the messages of maps counted.
func TestMapsHaveNoIndex(t *testing.T) {
	c := compiled(t, "protobuf", `syntax = "proto3"; message Main { map<string, int32> counts = 1;
		message First { int32 n = 1; } map<string, First> firsts = 2; message Second { int32 n = 1; } }`)
	for record, want := range map[string]string{"Main.First": "040000" + "0801", "Main.Second": "040002" + "0801"} {
		if got, err := c.append(nil, record, []byte(`{"n": 1}`)); err != nil || hex.EncodeToString(got) != want {
			t.Errorf("%s: got %x, %v, want %s", record, got, err, want)
		}
	}
	if got, err := c.append(nil, "Main.CountsEntry", []byte(`{}`)); !isLack(err) {
		t.Errorf("a map's own message: got %x, %v, want that there is none", got, err)
	}
}

// Breaks it catches: a reference that takes the place of the schema that names it. Seen to fail with one name for it.
func TestAReferenceCanHaveAnyName(t *testing.T) {
	c := compiled(t, "protobuf", `syntax = "proto3"; import "schema.proto"; message Main { Other other = 2; }`,
		reference{"_schema.proto", `syntax = "proto3"; message Far { int32 n = 1; }`},
		reference{"schema.proto", `syntax = "proto3"; import "_schema.proto"; message Other { Far far = 1; }`})
	got, err := c.append(nil, "", []byte(`{"other": {"far": {"n": 1}}}`))
	if err != nil || hex.EncodeToString(got) != "00"+"1204"+"0a02"+"0801" {
		t.Errorf("got %x, %v, want a Main", got, err)
	}
}

// Breaks it catches: a reason with a value of the payload, or without its place; a field that is lost. Seen to fail
// with protojson's own words.
func TestWhatDoesNotFitProtobufIsSaid(t *testing.T) {
	c := compiled(t, "protobuf", shop,
		reference{"address.proto", `syntax = "proto3"; package shop; message Address { string street = 1; }`})
	for payload, want := range map[string]string{
		`{"n": "4111x"}`:             "at / line 1:7: invalid value for int64 field n",
		`{"n": 4111.5}`:              "at / line 1:7: invalid value for int64 field n",
		`{"to": {"street": 4111}}`:   "at / line 1:19: invalid value for string field street",
		`{"secret": 1}`:              `at / line 1:2: unknown field "secret"`,
		`{"at": "4111"}`:             "at / line 1:8: invalid google.protobuf.Timestamp value",
		`{"counts": {"a": "4111x"}}`: "at / line 1:18: invalid value for int32 field value",
		`{"id": "a"`:                 "at / it does not fit",
		`[4111]`:                     "at / line 1:1: it is not JSON, or a value's type differs from the field's",
		``:                           "at / line 1:1: it is not JSON, or a value's type differs from the field's",
	} {
		_, err := c.append(nil, "", []byte(payload))
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "4111") {
			t.Errorf("%s: got %v, want %s", payload, err, want)
		}
	}
	if _, err := c.append(nil, "shop.Refund", []byte(`{}`)); err == nil ||
		!strings.Contains(err.Error(), `its schema has no message "shop.Refund"`) {
		t.Errorf("another message: got %v", err)
	}
	if _, err := compileProtobuf(`syntax = "proto3";`, nil); err == nil {
		t.Error("a schema without a message: got none of its own trouble")
	}
}

// A schema may import others that import further ones, have options of its own, be of an older syntax or a newer
// edition, and hold any message that it knows. Breaks it catches: an import that gets lost, a required field that may
// be missing. Seen to fail with the imports left out, and with what is required not looked for while reading.
func TestProtobufOfManyFilesAndSyntaxes(t *testing.T) {
	others := []reference{
		{"deep.proto", `edition = "2023"; package deep; message Deep { int32 n = 1; }`},
		{"option.proto", `syntax = "proto2"; import "google/protobuf/descriptor.proto";
			extend google.protobuf.FieldOptions { optional string label = 50000; }`},
		{"near.proto", `syntax = "proto3"; import public "deep.proto"; message Near { deep.Deep deep = 1; }`},
	}
	c := compiled(t, "protobuf", `syntax = "proto2"; import "near.proto"; import "option.proto";
		import "google/protobuf/any.proto"; message Main { required string id = 1 [(label) = "key"]; optional Near near = 2;
		optional deep.Deep deep = 3; optional google.protobuf.Any any = 4; }`, others...)
	got, err := c.append(nil, "", []byte(`{"id": "a", "near": {"deep": {"n": 1}}, "deep": {"n": 2},
		"any": {"@type": "x/deep.Deep", "n": 3}}`))
	const want = "00" + "0a0161" + "12040a020801" + "1a020802" + "2211" + "0a0b782f646565702e44656570" + "12020803"
	if err != nil || hex.EncodeToString(got) != want {
		t.Errorf("got %x, %v, want %s", got, err, want)
	}
	_, err = c.append(nil, "", []byte(`{"near": {}}`))
	if err == nil || !strings.Contains(err.Error(), "required field Main.id not set") {
		t.Errorf("without what is required: got %v", err)
	}
}
