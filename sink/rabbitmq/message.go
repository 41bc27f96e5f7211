package rabbitmq

import (
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Headers, or application properties, of ours besides the record's, and headers that mean something here.
const (
	keyHeader       = "x-outbox-key"
	eventIDHeader   = "x-event-id"
	tombstoneHeader = "x-outbox-tombstone"
	correlation     = "x-correlation-id"
	epochHeader     = "x-outbox-epoch"
	sourceHeader    = "x-outbox-source"
)

// brokers are the names of headers that RabbitMQ or its plugins read, or put there themselves. Of a row they are
// strings, which the server refuses (CC and BCC: it closes the channel) or takes for its own. Of a stream's message it
// makes headers for readers by AMQP 0-9-1, and their sessions crash at CC and BCC that are strings.
var brokers = map[string]string{
	"CC": "further routing keys", "BCC": "further routing keys",
	"x-death": "why and where a message was dead-lettered", "x-first-death-exchange": "the same",
	"x-first-death-queue": "the same", "x-first-death-reason": "the same", "x-last-death-exchange": "the same",
	"x-last-death-queue": "the same", "x-last-death-reason": "the same",
	"x-delivery-count": "how often a message was delivered", "x-acquired-count": "the same",
	"x-received-from": "the way of a federated message", "x-stream-offset": "the place of a message in a stream",
}

const (
	maxShort   = 255     // bytes of a routing key, a header's name and each short property; in a stream for such readers
	maxHeaders = 120_000 // bytes; properties and headers must fit one frame of 128 KiB
	// maxCount is the most headers: Go's client closes the connection of a consumer that gets a message with more than
	// 8,192, ours and the server's own among them.
	maxCount  = 8000
	fixedSize = 256
)

// message is the record as a message. The reason says why there can be none.
func (c Config) message(r *sink.Record) (p amqp.Publishing, key string, reason *sink.Reason) {
	defer sink.Recover(&reason)
	p = amqp.Publishing{
		DeliveryMode: amqp.Persistent, ContentType: c.contentType(r), Body: r.Value, Timestamp: time.UnixMilli(r.Timestamp),
		Headers: make(amqp.Table, r.Headers.Len()+3),
	}
	if n := r.Headers.Len(); n > maxCount {
		return p, "", invalid("TOO_MANY_HEADERS",
			fmt.Sprintf("the event has %d headers, and consumers by Go's client take at most %d", n, maxCount))
	}
	size := len(r.Key) + fixedSize
	for name, value := range r.Headers.All() {
		if meaning, known := brokers[name]; known {
			return p, "", invalid("INVALID_HEADER",
				fmt.Sprintf("RabbitMQ keeps the header %s for itself (%s); give it another name", name, meaning))
		}
		if name == eventIDHeader && c.IDHeader != eventIDHeader {
			continue // the row's own
		}
		if len(name) > maxShort {
			return p, "", invalid("INVALID_HEADER",
				fmt.Sprintf("the header %.50q has a name of %d bytes, RabbitMQ takes %d", name, len(name), maxShort))
		}
		size += len(name) + len(value) + 6
		switch name {
		case c.IDHeader:
			if len(value) == 0 || len(value) > maxShort {
				return p, "", invalid("INVALID_ID", fmt.Sprintf("the id has %d bytes, and the property message-id, by which "+
					"consumers recognize duplicates, takes 1 to %d", len(value), maxShort))
			}
			p.MessageId = string(value)
			p.Headers[eventIDHeader] = string(value)
		case c.TypeHeader:
			p.Type = short(value)
		case correlation:
			p.CorrelationId = short(value)
		}
		if value == nil {
			p.Headers[name] = nil
		} else {
			p.Headers[name] = string(value)
		}
	}
	if size > maxHeaders {
		return p, "", invalid("HEADERS_TOO_LARGE",
			fmt.Sprintf("the headers take %d bytes, RabbitMQ takes at most %d", size, maxHeaders))
	}
	if r.Key != nil {
		p.Headers[keyHeader] = string(r.Key)
	}
	if r.Value == nil {
		p.Headers[tombstoneHeader] = "true"
	}
	key = c.routingKey(r)
	if len(key) > maxShort {
		return p, "", invalid("INVALID_ROUTING_KEY",
			fmt.Sprintf("the routing key has %d bytes, RabbitMQ takes %d", len(key), maxShort))
	}
	return p, key, nil
}

// identity tells the messages of a wave apart: events of several outboxes may have one id.
type identity struct{ id, source string }

func identityOf(id string, headers amqp.Table) identity {
	source, _ := headers[sourceHeader].(string)
	return identity{id, source}
}

// contentType is the property of that name, "" for none.
func (c Config) contentType(r *sink.Record) string {
	if c.ContentType == "" && r.JSON {
		return "application/json"
	}
	return c.ContentType
}

func invalid(code, text string) *sink.Reason {
	return &sink.Reason{Class: outbox.Permanent, Code: code, Text: text}
}

// short is the value, if a property can hold it; the header of the same content has it in any case.
func short(value []byte) string {
	if len(value) > maxShort {
		return ""
	}
	return string(value)
}

// routingKey fills in the template: {key} is the record's key, another name the header.
func (c Config) routingKey(r *sink.Record) string {
	var b strings.Builder
	rest := c.RoutingKey
	for {
		literal, after, found := strings.Cut(rest, "{")
		b.WriteString(literal)
		if !found {
			return b.String()
		}
		name, behind, _ := strings.Cut(after, "}")
		if name == "key" {
			b.Write(r.Key)
		} else if value, there := r.Headers.Get(name); there {
			b.Write(value)
		}
		rest = behind
	}
}

// sizeOf bounds the record's size in a message.
func sizeOf(r *sink.Record) int {
	return len(r.Key) + len(r.Value) + len(r.Headers.Block()) + fixedSize
}
