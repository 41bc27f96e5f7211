package rabbitmqstream

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/rabbitmqstream/internal/wire"
)

// Application properties of ours besides the record's headers, and headers that mean something here.
const (
	keyHeader       = "x-outbox-key"
	eventIDHeader   = "x-event-id"
	tombstoneHeader = "x-outbox-tombstone"
	correlation     = "x-correlation-id"
	epochHeader     = "x-outbox-epoch"
	sourceHeader    = "x-outbox-source"
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
	// fixedSize is more than what a message takes besides its headers, key, value and properties made of headers.
	fixedSize = 160
	// valueSize is more than what a value takes besides its bytes.
	valueSize = 5
)

// judge says why the record cannot be a message; nil: it can.
func (c *Config) judge(r *sink.Record, frameLimit int) *sink.Reason {
	for name := range r.Headers.All() {
		if !utf8.ValidString(name) {
			return &sink.Reason{Class: outbox.Permanent, Code: "INVALID_HEADER",
				Text: fmt.Sprintf("the name of the header %.50q is not UTF-8, which AMQP 1.0 asks for", name)}
		}
	}
	if n := c.sizeOf(r) + wire.FrameHead; n > frameLimit {
		return &sink.Reason{Class: outbox.Permanent, Code: "MESSAGE_TOO_LARGE",
			Text: fmt.Sprintf("the message takes %d bytes, the server's frames %d (stream.frame_max)", n, frameLimit)}
	}
	return nil
}

// sizeOf is what the record takes of a frame, at most.
func (c *Config) sizeOf(r *sink.Record) int {
	n := wire.EntrySize + fixedSize + len(r.Key) + len(r.Value) + len(c.ContentType)
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

// appendMessage appends the record as a message of AMQP 1.0.
func (c *Config) appendMessage(b []byte, r *sink.Record) []byte {
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
	b = appendSymbol(b, c.ContentType)
	b = append(b, null, null, timestamp) // content-encoding, absolute-expiry-time; creation-time
	b = binary.BigEndian.AppendUint64(b, uint64(r.Timestamp))
	const listed = 10
	finish(b, at, listed)

	pairs := uint32(r.Headers.Len())
	b, at = section(b, applicationProperties, map32)
	for name, value := range r.Headers.All() {
		b = appendText(appendString(b, name), value)
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
