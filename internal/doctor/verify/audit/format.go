package audit

import (
	"bytes"
	"encoding/base64"
	"encoding/json"

	"github.com/cdc-relay/cdc-relay/config"
)

// payloadOf finds the row's payload in a message's value, as message.format has it there. A value of another form is
// given back as it is: it will differ from every row's.
func payloadOf(format, payloadType string, value []byte) []byte {
	switch {
	case value == nil:
		return nil
	case format == config.FormatJSONSchema && isRegistered(value):
		return value[registeredHead:]
	case encodes(format) && isRegistered(value):
		return encoded
	case format != config.FormatEnvelope:
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

// registeredHead is how long what is before a value in Confluent's wire format is: a zero byte and the schema's id.
const registeredHead = 5

func isRegistered(value []byte) bool { return len(value) >= registeredHead && value[0] == 0 }

// encodes reports whether the format makes other bytes of the payload, by a schema that only its registry has. Then
// encoded stands for each value that is not null, of rows and of messages: that there is one is compared, not which.
func encodes(format string) bool {
	return format == config.FormatAvro || format == config.FormatProtobuf
}

var encoded = []byte("encoded by a schema")

// expected returns the payload of a row's message, as payloadOf finds it. A column of type json keeps the
// white space around a document; in an envelope it is not the document's.
func expected(format, payloadType string, payload []byte) []byte {
	switch {
	case payload == nil:
		return nil
	case encodes(format):
		return encoded
	case format == config.FormatEnvelope && payloadType == "json":
		return bytes.Trim(payload, " \t\r\n")
	}
	return payload
}
