package audit

import (
	"encoding/base64"
	"encoding/json"

	"github.com/cdc-relay/cdc-relay/config"
)

// payloadOf finds the row's payload in a message's value, as message.format has it there. A value of another form is
// given back as it is: it will differ from every row's.
func payloadOf(format, payloadType string, value []byte) []byte {
	if format != config.FormatEnvelope || value == nil {
		return value
	}
	var envelope struct{ Payload json.RawMessage }
	if json.Unmarshal(value, &envelope) != nil || envelope.Payload == nil {
		return value
	}
	if payloadType == "jsonb" || payloadType == "json" {
		return envelope.Payload
	}
	var text *string // nil: null, which is no empty text
	if json.Unmarshal(envelope.Payload, &text) != nil || text == nil {
		return value
	}
	if payloadType != "bytea" {
		return []byte(*text)
	}
	bytes, err := base64.StdEncoding.DecodeString(*text)
	if err != nil {
		return value
	}
	return bytes
}
