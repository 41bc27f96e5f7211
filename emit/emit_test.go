package emit

import (
	"context"
	"encoding/json"
	"net"
	"regexp"
	"strings"
	"testing"
)

type recorder struct{ args []any }

func (r *recorder) Exec(_ context.Context, _ string, args ...any) (int, error) {
	r.args = args
	return 1, nil
}

// Seen to fail with payloads that are marshalled as Go strings.
func TestAPayloadIsJSON(t *testing.T) {
	for _, c := range []struct {
		payload any
		want    any
	}{
		{map[string]int{"total": 3}, `{"total":3}`},
		{json.RawMessage(`{"a": 1}`), `{"a":1}`},
		{"text", `"text"`},
		{nil, nil},
	} {
		var r recorder
		id, err := Emit(t.Context(), &r, Event{AggregateType: "order", AggregateID: "7", Type: "Placed", Payload: c.payload})
		if err != nil {
			t.Fatal(err)
		}
		if r.args[3] != c.want || r.args[6] != id {
			t.Errorf("%v: got payload %v and id %v, want %v and %v", c.payload, r.args[3], r.args[6], c.want, id)
		}
	}
}

// Seen to fail with the call going ahead without a type.
func TestAnEventNeedsItsTypes(t *testing.T) {
	var r recorder
	if _, err := Emit(t.Context(), &r, Event{AggregateType: "order"}); err == nil || r.args != nil {
		t.Errorf("an event without a type: got %v and %v, want an error and nothing written", err, r.args)
	}
}

// Seen to fail with the version's bits left as they are drawn.
func TestNewIDsAreOfVersion7(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	for range 1000 {
		if id := NewID(); !form.MatchString(id) {
			t.Fatalf("got %s, want a uuid of version 7", id)
		}
	}
}

// Bytes are refused rather than sent as base64, which no consumer expects; what knows its own JSON, or holds bytes in a
// field, goes. Seen to fail without the look: the payload was "eyJhIjoxfQ==".
func TestBytesAreNoPayload(t *testing.T) {
	type bytes []byte
	text := []byte(`{"a":1}`)
	for _, payload := range []any{text, &text, bytes(text), []byte(nil)} {
		_, _, _, err := Event{AggregateType: "order", Type: "Placed", Payload: payload}.statement()
		if err == nil || !strings.Contains(err.Error(), "json.RawMessage") {
			t.Errorf("%T: got %v, want an error that names json.RawMessage", payload, err)
		}
	}
	for _, payload := range []any{
		json.RawMessage(text), net.IPv4(127, 0, 0, 1), struct{ Raw []byte }{text}, []int{1}, "text", nil,
	} {
		if _, _, _, err := (Event{AggregateType: "order", Type: "Placed", Payload: payload}).statement(); err != nil {
			t.Errorf("%T: got %v", payload, err)
		}
	}
}
