package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// ErrEdit reports that a dead letter cannot become what it should: its table does not take it, or no message would.
var ErrEdit = errors.New("the dead letter cannot be edited like this")

// Edit is a person's change to a dead letter.
type Edit struct {
	ID      string // of the event
	Payload []byte // nil: SQL NULL, a tombstone
	Headers []byte // a JSON object of strings; nil: none
	Seen    int    // how many edits the person has seen: one that came since is not overwritten
	Who     string
	Note    string
	Replay  bool // ask for its replay, too
}

// Edited is one edit that was made, with what was there before it. Names in JSON are stable.
type Edited struct {
	At      time.Time
	Who     string
	Note    string
	Payload []byte // nil: SQL NULL
	Headers []byte // JSON, or nil
}

// MarshalJSON shows the former payload as a dead letter's is shown.
func (e Edited) MarshalJSON() ([]byte, error) {
	s := struct {
		At       time.Time       `json:"edited_at"`
		Who      string          `json:"edited_by"`
		Note     string          `json:"note"`
		Payload  any             `json:"former_payload"`
		Encoding string          `json:"former_payload_encoding"`
		Headers  json.RawMessage `json:"former_headers"`
	}{At: e.At, Who: e.Who, Note: e.Note}
	s.Payload, s.Encoding = ShownPayload(e.Payload)
	if json.Valid(e.Headers) {
		s.Headers = e.Headers
	}
	return json.Marshal(s)
}

// ShownPayload is a payload as the JSON that it is, or else as text or base64, and which of them.
func ShownPayload(payload []byte) (shown any, encoding string) {
	switch {
	case payload == nil:
		return nil, "null"
	case json.Valid(payload) && utf8.Valid(payload):
		return json.RawMessage(payload), "json"
	case utf8.Valid(payload):
		return string(payload), "text"
	}
	return payload, "base64"
}

// Check says what no message could be made of; what the table takes is for the server to say.
func (e Edit) Check() error {
	if e.Headers == nil {
		return nil
	}
	var values map[string]*string
	decoder := json.NewDecoder(bytes.NewReader(e.Headers))
	if err := decoder.Decode(&values); err != nil || values == nil || decoder.More() {
		return fmt.Errorf("%w: headers: want a JSON object of strings, such as {\"tenant\": \"a\"}", ErrEdit)
	}
	return nil
}
