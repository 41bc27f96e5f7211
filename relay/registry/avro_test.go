package registry

import (
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/avro"
)

// order has each kind of type that Avro has.
const order = `{"type": "record", "name": "Order", "namespace": "com.shop", "fields": [
	{"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
	{"name": "n", "type": "long"}, {"name": "small", "type": "int", "default": 7},
	{"name": "ok", "type": "boolean"}, {"name": "f", "type": "float"}, {"name": "d", "type": "double"},
	{"name": "note", "type": ["null", "string"], "default": null}, {"name": "gift", "type": ["null", "boolean"]},
	{"name": "code", "type": ["string", "long"], "default": "none"},
	{"name": "raw", "type": "bytes", "default": "\u00ff"},
	{"name": "hash", "type": {"type": "fixed", "name": "H", "size": 2}},
	{"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
	{"name": "tax", "type": {"type": "fixed", "name": "T", "size": 4, "logicalType": "decimal", "precision": 8,
		"scale": 3}},
	{"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
	{"name": "day", "type": {"type": "int", "logicalType": "date"}},
	{"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
	{"name": "state", "type": {"type": "enum", "name": "S", "symbols": ["NEW", "PAID"]}},
	{"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
	{"name": "counts", "type": {"type": "map", "values": "int"}},
	{"name": "next", "type": ["null", "Order"], "default": null},
	{"name": "pay", "type": ["null", {"type": "record", "name": "Card", "fields": [{"name": "no", "type": "string"}]},
		{"type": "record", "name": "Cash", "fields": [{"name": "paid", "type": "int"}]}], "default": null}]}`

// placed is a payload that it takes; members are added or replaced.
func placed(t testing.TB, members string) []byte {
	t.Helper()
	all := map[string]json.RawMessage{}
	for _, text := range []string{`{"id": "019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01", "n": 9007199254740993, "ok": true,
		"f": 1.5, "d": 1e300, "hash": "\u00ab\u0001", "total": 99.90, "tax": "-1.250", "at": "2026-11-21T16:36:32.123456Z",
		"day": "1969-12-31", "clock": "00:00:01.5", "state": "PAID", "counts": {"b": 2, "a": 1}}`, members} {
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func compiled(t testing.TB, format, text string, references ...reference) codec {
	t.Helper()
	c, err := formats[format].compile(text, references)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// What is written is read back by the library, which is independent of our encoder. Breaks it catches: a branch of a
// union, a default, a logical type or a number that is another one. Seen to fail with nothing written for a member that
// is missing.
func TestJSONBecomesAvroByTheSchema(t *testing.T) {
	s, c := avro.MustParse(order), compiled(t, "avro", order)
	for members, want := range map[string]string{
		`{}`: `{"small":7,"note":null,"gift":null,"code":"none","raw":"\u00ff","tags":[],"next":null,"pay":null}`,
		`{"small": 5.0, "note": "x", "gift": false, "code": 12, "raw": "\u0000\u0001", "tags": ["a", "ü"]}`: `{"small":5,
			"note":"x","gift":false,"code":12,"raw":"\u0000\u0001","tags":["a","ü"],"next":null,"pay":null}`,
		`{"note": {"string": "tagged"}, "code": {"long": 3}, "pay": {"no": "1"}}`: `{"small":7,"note":"tagged","gift":null,
			"code":3,"raw":"\u00ff","tags":[],"next":null,"pay":{"no":"1"}}`,
		`{"pay": {"com.shop.Cash": {"paid": 3}}}`: `{"small":7,"note":null,"gift":null,"code":"none","raw":"\u00ff",
			"tags":[],"next":null,"pay":{"paid":3}}`,
	} {
		payload := placed(t, members)
		value, err := c.append([]byte("kept"), "com.shop.Order", payload)
		if err != nil {
			t.Fatalf("%s: %v", members, err)
		}
		again, err := c.append([]byte("kept"), "", payload)
		if err != nil || string(again) != string(value) {
			t.Errorf("%s: the same payload made other bytes: %x, then %x (%v)", members, value, again, err)
		}
		var got any
		if rest, err := s.Decode(value[4:], &got); err != nil || len(rest) > 0 {
			t.Fatalf("%s: decode: %v, %d bytes left", members, err, len(rest))
		}
		text, err := s.EncodeJSON(got)
		if err != nil {
			t.Fatal(err)
		}
		const fixed = `{"id":"019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01","n":9007199254740993,"ok":true,"f":1.5,"d":1e+300,
			"hash":"\u00ab\u0001","total":"\u0027\u0006","tax":"\u00ff\u00ff\u00fb\u001e","at":1795278992123456,"day":-1,
			"clock":1500,"state":"PAID","counts":{"a":1,"b":2}}`
		if diff := cmp.Diff(merged(t, fixed, want), merged(t, string(text))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", members, diff)
		}
	}
}

// merged are those of objects, the later ones first.
func merged(t *testing.T, texts ...string) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, text := range texts {
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&all); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// Breaks it catches: a payload that does not fit and is written as something else, a member that is lost, a reason that
// does not name the place or has a value of the payload. Seen to fail with unknown members passed over, and with a
// decimal rounded.
func TestWhatDoesNotFitAvroIsSaid(t *testing.T) {
	c := compiled(t, "avro", order)
	for members, want := range map[string]string{
		`{"secret": 1}`:                   `at / it has "secret", which the schema lacks`,
		`{"n": null}`:                     "at /n expected long, got null",
		`{"n": "4111"}`:                   "at /n expected long, got string",
		`{"n": 4111.5}`:                   "at /n expected long, got number",
		`{"n": 1e999999999}`:              "at /n expected long, got number",
		`{"n": 9223372036854775808}`:      "at /n expected long, got number",
		`{"small": 2147483648}`:           "at /small expected int, got number",
		`{"f": 1e39}`:                     "at /f expected float, got number",
		`{"id": "4111"}`:                  "at /id expected string (uuid), got string",
		`{"hash": "4111"}`:                "at /hash expected fixed, got string",
		`{"raw": "4111€"}`:                "at /raw expected bytes, got string",
		`{"total": 4111.005}`:             "at /total expected bytes (decimal), got number",
		`{"total": 12345678.00}`:          "at /total expected bytes (decimal), got number",
		`{"at": "4111"}`:                  "at /at expected long (timestamp-micros), got string",
		`{"state": "4111"}`:               "at /state expected enum, got string",
		`{"tags": ["a", 4111]}`:           "at /tags/1 expected string, got number",
		`{"counts": {"a~b/c": []}}`:       "at /counts/a~0b~1c expected int, got array",
		`{"note": 4111}`:                  "at /note expected string, got number",
		`{"code": true}`:                  "at /code no branch of the union takes a boolean",
		`{"pay": {"no": "4111", "x": 1}}`: "at /pay no branch of the union takes a object",
		`{"next": {"id": "4111"}}`:        "at /next/id expected string (uuid), got string",
	} {
		_, err := c.append(nil, "", placed(t, members))
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", members, err, want)
		}
	}
	for payload, want := range map[string]string{`{"id": `: "at / it is not JSON",
		`{} {}`: "at / something follows the JSON",
		`[]`:    "at / expected record, got array", `{}`: `at / it lacks "id", which has no default`} {
		if _, err := c.append(nil, "", []byte(payload)); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", payload, err, want)
		}
	}
	if _, err := c.append(nil, "com.shop.Refund", placed(t, `{}`)); err == nil ||
		!strings.Contains(err.Error(), `its schema has no record "com.shop.Refund"`) {
		t.Errorf("another record: got %v", err)
	}
}

// A union at the top holds the events of a topic; which one it is says registry.record. Seen to fail with the first
// branch taken.
func TestARecordOfAUnionIsChosenByItsName(t *testing.T) {
	c := compiled(t, "avro", `["a.X", "a.Y"]`,
		reference{"a.X", `{"type": "record", "name": "X", "namespace": "a", "fields": [{"name": "n", "type": "int"}]}`},
		reference{"a.Y", `{"type": "record", "name": "Y", "namespace": "a", "fields": [{"name": "n", "type": "int"}]}`})
	for record, want := range map[string]string{"a.X": "0002", "a.Y": "0202", "": "0002"} {
		got, err := c.append(nil, record, []byte(`{"n": 1}`))
		if err != nil || hex.EncodeToString(got) != want {
			t.Errorf("%q: got %x, %v, want %s", record, got, err, want)
		}
	}
}

// The bounds of two's complement. Seen to fail with a byte too few for 128.
func TestDecimalsTakeAsFewBytesAsTheyCan(t *testing.T) {
	typ := &avroType{kind: "bytes", logical: "decimal", precision: 20}
	for text, want := range map[string]string{"0": "00", "127": "7f", "128": "0080", "-1": "ff", "-128": "80",
		"-129": "ff7f", "255": "00ff", "1e2": "64"} {
		if got, ok := typ.decimal(json.Number(text)); !ok || hex.EncodeToString(got) != want {
			t.Errorf("%s: got %x, want %s", text, got, want)
		}
	}
}

// FuzzAvro: whatever the payload is, what is written can be read, and nothing panics.
func FuzzAvro(f *testing.F) {
	s, c := avro.MustParse(order), compiled(f, "avro", order)
	f.Add(placed(f, `{"pay": {"no": "1"}}`))
	f.Add([]byte(`{"n": 1e1000, "total": "1/3"}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		value, err := c.append(nil, "", payload)
		if err != nil {
			return
		}
		var got any
		if rest, err := s.Decode(value, &got); err != nil || len(rest) > 0 {
			t.Errorf("%s: decode: %v, %d bytes left", payload, err, len(rest))
		}
	})
}
