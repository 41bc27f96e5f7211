package web

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/internal/web/consumers"
)

// With payload=text an answer has each payload as text too: a browser that reads JSON loses digits
// of large numbers, and a person must edit the real payload.

// asText is bytes as text, if they are one.
func asText(b []byte) *string {
	if !utf8.Valid(b) {
		return nil
	}
	text := string(b)
	return &text
}

// jsonText is JSON as text, if there is any.
func jsonText(b []byte) *string {
	if !json.Valid(b) {
		return nil
	}
	text := string(b)
	return &text
}

// joined is two objects as one.
func joined(shown, more any) (json.RawMessage, error) {
	first, err := json.Marshal(shown)
	if err != nil {
		return nil, err
	}
	second, err := json.Marshal(more)
	if err != nil || string(second) == "{}" {
		return first, err
	}
	return append(append(first[:len(first)-1], ','), second[1:]...), nil
}

// textual is a dead letter with its texts, and those that it had before each edit.
func textual(d *store.DeadLetterWhole) (any, error) {
	type former struct {
		Payload *string `json:"former_payload_text,omitempty"`
		Headers *string `json:"former_headers_text,omitempty"`
	}
	texts := struct {
		Payload *string           `json:"payload_text,omitempty"`
		Headers *string           `json:"headers_text,omitempty"`
		Edits   []json.RawMessage `json:"edits,omitempty"`
	}{Payload: asText(d.Payload), Headers: jsonText(d.Headers)}
	for _, e := range d.Edits {
		edit, err := joined(e, former{asText(e.Payload), jsonText(e.Headers)})
		if err != nil {
			return nil, err
		}
		texts.Edits = append(texts.Edits, edit)
	}
	bare := *d
	bare.Edits = nil
	return joined(bare, texts)
}

// textualEvent is an event of a consumer with its payload's text.
func textualEvent(w *consumers.Whole) (any, error) {
	return joined(w, struct {
		Payload *string `json:"payload_text,omitempty"`
	}{asText(w.Payload)})
}
