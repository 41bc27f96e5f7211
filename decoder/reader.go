package decoder

import (
	"bytes"
	"encoding/binary"
)

// reader reads the parts of one message in order. Its first fault sticks: from then on it reads zeros, so that a
// message is read in a straight line and judged once, by [Decoder.finish].
type reader struct {
	data  []byte
	off   int
	fault string // what is wrong, at off
}

func (r *reader) fail(what string) {
	if r.fault == "" {
		r.fault = what
	}
}

// bytes returns the next n bytes. Its capacity ends with it, so that an append never writes into the bytes behind it.
func (r *reader) bytes(n int64) []byte {
	if r.fault != "" || n > int64(len(r.data)-r.off) {
		r.fail("message is cut")
		return nil
	}
	from := r.off
	r.off += int(n)
	return r.data[from:r.off:r.off]
}

func (r *reader) uint8() uint8 {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint16() uint16 {
	if b := r.bytes(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// string returns the bytes up to the next zero byte and steps over that.
func (r *reader) string() []byte {
	if r.fault == "" {
		if n := bytes.IndexByte(r.data[r.off:], 0); n >= 0 {
			s := r.bytes(int64(n))
			r.off++
			return s
		}
		r.fail("string without an end")
	}
	return nil
}

// finish is the verdict on a message that has been read: it must hold no fault and no bytes behind its last part.
func (d *Decoder) finish(r *reader) error {
	if r.fault == "" && r.off != len(r.data) {
		r.fault = "bytes after the end of the message"
	}
	if r.fault != "" {
		return d.malformed(r.data, r.off, r.fault)
	}
	return nil
}
