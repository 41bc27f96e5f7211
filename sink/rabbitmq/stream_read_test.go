package rabbitmq_test

import (
	"encoding/base64"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// messageOf reads a message by AMQP 0-9-1, by the rules of the package's documentation.
func messageOf(t *testing.T, topic string, d amqp.Delivery) sinktest.Message {
	m := sinktest.Message{Topic: topic, Value: d.Body}
	if m.Value == nil {
		m.Value = []byte{}
	}
	for name, value := range d.Headers {
		var text []byte
		switch v := value.(type) {
		case string:
			text = []byte(v)
		case []byte:
			text = v
		case int64:
			m.Offset = v
		}
		switch name {
		case "x-stream-offset":
		case "x-outbox-key":
			m.Key = text
		case "x-outbox-tombstone":
			m.Value = nil
		case "x-message-id-type": // the server's, of an id that is no text
		case "x-event-id":
			id := d.MessageId
			if d.Headers["x-message-id-type"] == "binary" {
				raw, err := base64.StdEncoding.DecodeString(id)
				if err != nil {
					t.Errorf("message-id %s: %v", id, err)
				}
				id = string(raw)
			}
			if string(text) != id {
				t.Errorf("x-event-id %q and message-id %q differ", text, id)
			}
		default:
			m.Headers.Add(name, text)
		}
	}
	return m
}
