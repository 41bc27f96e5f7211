package inbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Header is a header of a message.
type Header struct {
	Key   string
	Value []byte
}

// Message is an event before its payload is decoded.
type Message struct {
	ID            string // the same in every message of an event
	Source        string // in which ids that are no uuids are unique
	Type          string
	AggregateType string
	Key           []byte // nil: it has no order
	CreatedAt     time.Time
	Late          bool // it may come behind later events of its key: the relay's stream had not delivered it in its place
	Replay        bool // a dead letter, of the relay or of this inbox, that was replayed: the same
	Attempt       int  // from 1

	Topic     string
	Partition int32
	Offset    int64
	Timestamp time.Time
	Headers   []Header
	Payload   []byte // nil: a tombstone
}

// Event is a message with its decoded payload, the zero value for a tombstone.
type Event[T any] struct {
	*Message
	Payload T
}

// Header returns the value of the last header with the name.
func (m *Message) Header(name string) (value []byte, there bool) {
	for _, h := range m.Headers {
		if h.Key == name {
			value, there = h.Value, true
		}
	}
	return value, there
}

// newMessage returns a message without headers and value.
func newMessage(r *kgo.Record) *Message {
	m := &Message{
		Key: r.Key, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp, Payload: r.Value,
		Attempt: 1,
	}
	if len(r.Headers) > 0 {
		m.Headers = make([]Header, len(r.Headers))
		for i, h := range r.Headers {
			m.Headers[i] = Header(h)
		}
	}
	return m
}

// The headers that hold an event's type, of the relay's formats and of Debezium's outbox router.
const (
	headerType         = "event_type"
	headerCloudType    = "ce_type"
	headerDebeziumType = "eventType"
)

func isType(header string) bool {
	return header == headerType || header == headerCloudType || header == headerDebeziumType
}

// parse reads what the relay's formats and Debezium's outbox router say in headers.
func parse(m *Message) {
	for _, h := range m.Headers {
		switch h.Key {
		case "id", "ce_id", "x-event-id":
			m.ID = string(h.Value)
		case headerType, headerCloudType, headerDebeziumType:
			m.Type = string(h.Value)
		case "aggregate_type", "ce_aggregatetype":
			m.AggregateType = string(h.Value)
		case "created_at", "ce_time":
			m.CreatedAt, _ = time.Parse(time.RFC3339Nano, string(h.Value))
		case "x-outbox-late":
			m.Late = true
		case "x-outbox-replay":
			m.Replay = true
		case "x-outbox-source":
			m.Source = sourceOf(string(h.Value))
		}
	}
}

// sourceOf leaves the timeline out of <system id>/<timeline>/<source>: a failover changes it.
func sourceOf(position string) string {
	parts := strings.Split(position, "/")
	if len(parts) != 3 {
		return position
	}
	return parts[0] + "/" + parts[2]
}

// envelope is the relay's message.format of that name.
type envelope struct {
	ID            json.RawMessage `json:"id"`
	Type          string          `json:"type"`
	AggregateType string          `json:"aggregate_type"`
	OccurredAt    time.Time       `json:"occurred_at"`
	Payload       json.RawMessage `json:"payload"`
}

// open takes the payload out of its envelope, and what the headers do not say.
func (m *Message) open() error {
	if m.Payload == nil {
		return nil
	}
	var e envelope
	if err := json.Unmarshal(m.Payload, &e); err != nil {
		return fmt.Errorf("read the envelope: %w", err)
	}
	if len(e.ID) == 0 || len(e.Payload) == 0 {
		return errors.New("read the envelope: it has no id or no payload")
	}
	m.Payload = e.Payload
	def(&m.Type, e.Type)
	def(&m.AggregateType, e.AggregateType)
	def(&m.CreatedAt, e.OccurredAt)
	if m.ID == "" && json.Unmarshal(e.ID, &m.ID) != nil { // a number
		m.ID = string(e.ID)
	}
	return nil
}

// identify gives a message without an id one that is its own: its place. Nothing better is there to tell it by.
func (m *Message) identify(topicID string) {
	if m.ID != "" {
		return
	}
	m.ID = m.Topic + "/" + strconv.Itoa(int(m.Partition)) + "/" + strconv.FormatInt(m.Offset, 10)
	m.Source = "topic " + topicID
}

// read makes a message of a record. With an error the message has what could be read.
func (c *Config) read(r *kgo.Record, topicID string) (*Message, error) {
	var m *Message
	var err error
	if c.Parse != nil {
		m, err = c.Parse(r)
		if m == nil {
			m = newMessage(r)
		}
		m.Attempt = 1
	} else {
		m = newMessage(r)
		parse(m)
		if c.Envelope || m.ID == "" && len(m.Payload) > 0 && m.Payload[0] == '{' {
			if err = m.open(); !c.Envelope {
				err = nil // it was a guess
			}
		}
	}
	if unfit := m.unfit(); unfit != nil {
		m.ID, err = "", errors.Join(err, unfit)
	}
	m.identify(topicID)
	return m, err
}

// mostID is how many bytes an id or a source may have: what an entry of their tables' keys holds.
const mostID = 2688

// unfit says why the message cannot be told by its id: the tables could not hold it.
func (m *Message) unfit() error {
	if err := unfit("id", m.ID); err != nil {
		return err
	}
	return unfit("source", m.Source)
}

func unfit(name, text string) error {
	switch {
	case len(text) > mostID:
		return fmt.Errorf("its %s has %d bytes, and the inbox holds %d", name, len(text), mostID)
	case clean(text) != text:
		return fmt.Errorf("its %s %.100q is not text that Postgres can hold", name, text)
	}
	return nil
}

// clean is the text as Postgres can hold it: in UTF-8, without zeros.
func clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "")
}
