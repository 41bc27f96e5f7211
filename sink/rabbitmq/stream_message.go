package rabbitmq

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/rabbitmq/internal/wire"
)

// AMQP 1.0: sections of a message, and the constructors of values.
const (
	properties            = 0x73
	applicationProperties = 0x74
	data                  = 0x75

	null      = 0x40
	timestamp = 0x83
	binary8   = 0xa0
	string8   = 0xa1
	symbol8   = 0xa3
	binary32  = 0xb0
	string32  = 0xb1
	list32    = 0xd0
	map32     = 0xd1
)

const (
	// messageSize is more than what a message takes besides its headers, key, value and properties made of headers.
	messageSize = 160
	// valueSize is more than what a value takes besides its bytes.
	valueSize = 5
)

// judge says why the record cannot be a message; nil: it can.
func (c *StreamConfig) judge(r *sink.Record, frameLimit int) (reason *sink.Reason) {
	defer sink.Recover(&reason)
	if n := r.Headers.Len(); n > maxCount {
		return &sink.Reason{Class: outbox.Permanent, Code: "TOO_MANY_HEADERS",
			Text: fmt.Sprintf("the event has %d headers, and readers by Go's client for AMQP 0-9-1 take at most %d", n,
				maxCount)}
	}
	for name, value := range r.Headers.All() {
		code, text := "INVALID_HEADER", ""
		switch meaning := brokers[name]; {
		case meaning != "":
			text = fmt.Sprintf("RabbitMQ keeps the header %s for itself (%s); give it another name", name, meaning)
		case !utf8.ValidString(name):
			text = fmt.Sprintf("the name of the header %.50q is not UTF-8, which AMQP 1.0 asks for", name)
		case len(name) > maxShort:
			text = fmt.Sprintf("the header %.50q has a name of %d bytes, readers by AMQP 0-9-1 take %d", name, len(name),
				maxShort)
		case name == c.IDHeader && len(value) > maxShort:
			code = "INVALID_ID"
			text = fmt.Sprintf("the id has %d bytes, and the property message-id, by which consumers recognize duplicates, "+
				"has at most %d for readers by AMQP 0-9-1", len(value), maxShort)
		}
		if text != "" {
			return &sink.Reason{Class: outbox.Permanent, Code: code, Text: text}
		}
	}
	if n := c.sizeOf(r) + wire.FrameHead; n > frameLimit {
		return &sink.Reason{Class: outbox.Permanent, Code: "MESSAGE_TOO_LARGE",
			Text: fmt.Sprintf("the message takes %d bytes, the server's frames %d (stream.frame_max)", n, frameLimit)}
	}
	return nil
}

// sizeOf bounds the record's size in a frame.
func (c *StreamConfig) sizeOf(r *sink.Record) int {
	n := wire.EntrySize + messageSize + len(r.Key) + len(r.Value) + len(c.contentType(r))
	for name, value := range r.Headers.All() {
		n += len(name) + len(value) + 2*valueSize
		switch name {
		case c.IDHeader:
			n += 2*(len(value)+valueSize) + len(eventIDHeader)
		case c.TypeHeader, correlation:
			n += len(value) + valueSize
		}
	}
	return n
}

// contentType is the property of that name, "" for none.
func (c *StreamConfig) contentType(r *sink.Record) string {
	if c.ContentType == "" && r.JSON {
		return "application/json"
	}
	return c.ContentType
}

// appendMessage appends the record as a message of AMQP 1.0.
func (c *StreamConfig) appendMessage(b []byte, r *sink.Record) []byte {
	var id, kind, about []byte
	for name, value := range r.Headers.All() {
		switch name {
		case c.IDHeader:
			id = value
		case c.TypeHeader:
			kind = value
		case correlation:
			about = value
		}
	}
	b, at := section(b, properties, list32)
	b = append(appendText(b, id), null, null) // user-id, to
	if utf8.Valid(kind) {
		b = appendText(b, kind) // subject
	} else {
		b = append(b, null)
	}
	b = append(b, null) // reply-to
	b = appendText(b, about)
	b = appendSymbol(b, c.contentType(r))
	b = append(b, null, null, timestamp) // content-encoding, absolute-expiry-time; creation-time
	b = binary.BigEndian.AppendUint64(b, uint64(r.Timestamp))
	const listed = 10
	finish(b, at, listed)

	pairs := uint32(0)
	b, at = section(b, applicationProperties, map32)
	for name, value := range r.Headers.All() {
		if name != eventIDHeader { // the row's own, or the same once more
			b = appendText(appendString(b, name), value)
			pairs++
		}
	}
	if id != nil {
		b = appendText(appendString(b, eventIDHeader), id)
		pairs++
	}
	if r.Key != nil {
		b = appendText(appendString(b, keyHeader), r.Key)
		pairs++
	}
	if r.Value == nil {
		b = appendString(appendString(b, tombstoneHeader), "true")
		pairs++
	}
	finish(b, at, 2*pairs)
	return appendSized(append(b, 0, 0x53, data), binary8, r.Value)
}

// section begins a section that is a list or map, whose size and count finish fills in.
func section(b []byte, code, constructor byte) (_ []byte, at int) {
	b = append(b, 0, 0x53, code, constructor)
	return append(b, 0, 0, 0, 0, 0, 0, 0, 0), len(b)
}

func finish(b []byte, at int, count uint32) {
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	binary.BigEndian.PutUint32(b[at+4:], count)
}

// appendText appends a string, or bytes if it is none; nil is null.
func appendText(b, value []byte) []byte {
	switch {
	case value == nil:
		return append(b, null)
	case utf8.Valid(value):
		return appendSized(b, string8, value)
	}
	return appendSized(b, binary8, value)
}

func appendString(b []byte, value string) []byte {
	if len(value) < 256 {
		return append(append(b, string8, byte(len(value))), value...)
	}
	b = binary.BigEndian.AppendUint32(append(b, string32), uint32(len(value)))
	return append(b, value...)
}

func appendSymbol(b []byte, value string) []byte {
	if value == "" || len(value) > 255 {
		return append(b, null)
	}
	return append(append(b, symbol8, byte(len(value))), value...)
}

// appendSized appends bytes by the constructor with a length of one byte, or the one with four.
func appendSized(b []byte, small byte, value []byte) []byte {
	if len(value) < 256 {
		return append(append(b, small, byte(len(value))), value...)
	}
	b = binary.BigEndian.AppendUint32(append(b, small+0x10), uint32(len(value)))
	return append(b, value...)
}
