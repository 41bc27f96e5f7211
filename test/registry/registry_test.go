package registry_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay/registry"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// A real registry has the schemas, and its deserializers for Java read what is made by them: nothing differs from the
// payloads. Seen to fail with the bytes of the id turned around, and without the indexes of a message.
func TestJavaReadsWhatIsMadeByTheSchemas(t *testing.T) {
	events := harness.Count(t, "values read by Java")
	server := harness.NewRegistry(t)
	for _, f := range []struct{ format, kind, schema string }{
		{config.FormatAvro, "AVRO", `{"type": "record", "name": "O", "namespace": "shop", "fields": [
			{"name": "id", "type": "string"}, {"name": "n", "type": "int"}, {"name": "price", "type": "double"},
			{"name": "note", "type": ["null", "string"]}, {"name": "tags", "type": {"type": "array", "items": "string"}},
			{"name": "line", "type": {"type": "record", "name": "L", "fields": [{"name": "sku", "type": "string"}]}}]}`},
		{config.FormatProtobuf, "PROTOBUF", `syntax = "proto3"; package shop; message O { string id = 1; int32 n = 2;
			double price = 3; string note = 4; repeated string tags = 5; message L { string sku = 1; } L line = 6; }
			message Other { string id = 1; }`},
		{config.FormatJSONSchema, "JSON", `{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
			"required": ["id"], "properties": {"id": {"type": "string"}, "n": {"type": "integer"}}}`},
	} {
		subject := f.format + "-value"
		server.Register(t, subject, f.kind, f.schema)
		c := config.Default()
		c.Message.Format, c.Registry.URL = f.format, server.URL
		schemas, err := registry.Open(c, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(schemas.Close)
		if _, err := schemas.Await(t.Context(), nil, subject, func(err error) { t.Log(err) }); err != nil {
			t.Fatal(err)
		}
		var payloads []string
		var values [][]byte
		for n := 1; n <= events; n++ {
			payload := fmt.Sprintf(`{"id": "€%d", "n": %d, "price": %d.5, "note": "n%d", "tags": ["a", "b%d"], `+
				`"line": {"sku": "s"}}`, n, n*7919%1_000_003, n, n, n)
			value, err := schemas.Append(nil, []byte(subject), nil, []byte(payload))
			if err != nil {
				t.Fatalf("%s: %v", f.format, err)
			}
			payloads, values = append(payloads, payload), append(values, value)
		}
		var message []string
		if f.format == config.FormatProtobuf {
			message = []string{"O"}
		}
		read := server.Deserialize(t, f.format, values, message...)
		if len(read) != events {
			t.Fatalf("%s: Java read %d values, want %d", f.format, len(read), events)
		}
		different := 0
		for i := range read {
			if diff := cmp.Diff(object(t, payloads[i]), object(t, read[i])); diff != "" {
				if different++; different == 1 {
					t.Errorf("%s: the payload, and what Java read of it (-want +got):\n%s", f.format, diff)
				}
			}
		}
		t.Logf("%s: %d values read by Java, %d different", f.format, events, different)
	}
}

func object(t *testing.T, text string) (o map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return o
}
