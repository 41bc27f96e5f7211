package simulator

import (
	"encoding/binary"
	"fmt"
)

// What of AMQP 0-9-1 goes over a connection to a made-up broker.

const (
	frameMethod    = 1
	frameHeader    = 2
	frameBody      = 3
	frameHeartbeat = 8
	frameEnd       = 0xce
	frameHead      = 7 // type, channel, size
	protocolHead   = 8 // "AMQP" and a version
)

// method is a method's class and number.
type method struct{ class, number uint16 }

var (
	connectionStart   = method{10, 10}
	connectionStartOk = method{10, 11}
	connectionTune    = method{10, 30}
	connectionTuneOk  = method{10, 31}
	connectionOpen    = method{10, 40}
	connectionOpenOk  = method{10, 41}
	connectionClose   = method{10, 50}
	connectionCloseOk = method{10, 51}
	channelOpen       = method{20, 10}
	channelOpenOk     = method{20, 11}
	channelClose      = method{20, 40}
	channelCloseOk    = method{20, 41}
	exchangeDeclare   = method{40, 10}
	exchangeDeclareOk = method{40, 11}
	basicPublish      = method{60, 40}
	basicReturn       = method{60, 50}
	basicAck          = method{60, 80}
	basicNack         = method{60, 120}
	confirmSelect     = method{85, 10}
	confirmSelectOk   = method{85, 11}
)

// builder makes a payload.
type builder []byte

func (b builder) octet(v byte) builder       { return append(b, v) }
func (b builder) short(v uint16) builder     { return binary.BigEndian.AppendUint16(b, v) }
func (b builder) long(v uint32) builder      { return binary.BigEndian.AppendUint32(b, v) }
func (b builder) longlong(v uint64) builder  { return binary.BigEndian.AppendUint64(b, v) }
func (b builder) shortText(s string) builder { return append(append(b, byte(len(s))), s...) }
func (b builder) longText(s string) builder  { return append(b.long(uint32(len(s))), s...) }

func (m method) begin() builder { return builder{}.short(m.class).short(m.number) }

// frame is one with that payload.
func frame(kind byte, channel uint16, payload []byte) []byte {
	b := builder{kind}.short(channel).long(uint32(len(payload)))
	return append(append(b, payload...), frameEnd)
}

// cursor reads a payload. What it reads was written by a client that is trusted: it panics where that is no such thing.
type cursor []byte

func (c *cursor) take(n int) []byte {
	b := (*c)[:n]
	*c = (*c)[n:]
	return b
}

func (c *cursor) octet() byte       { return c.take(1)[0] }
func (c *cursor) short() uint16     { return binary.BigEndian.Uint16(c.take(2)) }
func (c *cursor) long() uint32      { return binary.BigEndian.Uint32(c.take(4)) }
func (c *cursor) longlong() uint64  { return binary.BigEndian.Uint64(c.take(8)) }
func (c *cursor) shortText() string { return string(c.take(int(c.octet()))) }
func (c *cursor) longText() string  { return string(c.take(int(c.long()))) }

// table reads a table of texts; what has no value is left out.
func (c *cursor) table() map[string]string {
	rest := cursor(c.take(int(c.long())))
	texts := map[string]string{}
	for len(rest) > 0 {
		name := rest.shortText()
		switch kind := rest.octet(); kind {
		case 'S':
			texts[name] = rest.longText()
		case 'V':
		default:
			panic(fmt.Sprintf("a header of kind %c", kind))
		}
	}
	return texts
}

// The properties of a message that come before its headers, and those that are texts, in their order.
const (
	flagContentType     = 1 << 15
	flagContentEncoding = 1 << 14
	flagHeaders         = 1 << 13
)

// contentHead is the size of a message's body, and its headers.
func contentHead(payload cursor) (size uint64, headers map[string]string) {
	payload.take(4) // class, weight
	size = payload.longlong()
	flags := payload.short()
	for _, flag := range []uint16{flagContentType, flagContentEncoding} {
		if flags&flag != 0 {
			payload.shortText()
		}
	}
	if flags&flagHeaders != 0 {
		headers = payload.table()
	}
	return size, headers
}
