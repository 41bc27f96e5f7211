package outbox

import (
	"encoding/binary"
	"iter"
)

// Headers is a list of message headers in one compact block: per header the key's length, the key, the value's length,
// the value, lengths as zig-zag varints, the length -1 for a null value. That is also the form of a header inside a
// Kafka record (Kafka protocol guide, "Record"), so that driver copies the block as it is; others iterate with
// [Headers.All]. One block instead of a slice of pairs keeps an event in flight small and free of pointers.
//
// The zero value is an empty list.
type Headers struct {
	block []byte
	count int
}

// HeadersIn returns an empty list that appends into b's spare capacity, so that a caller can place many lists in one
// buffer. The list never writes past cap(b) of what it was given: it moves to a new buffer instead.
func HeadersIn(b []byte) Headers { return Headers{block: b[:0]} }

// In returns the list in memory of the caller: a copy behind what b holds, in b's spare capacity if there is enough.
func (h Headers) In(b []byte) Headers {
	from := len(b)
	b = append(b, h.block...)
	return Headers{block: b[from:len(b):len(b)], count: h.count}
}

// Add appends a header. A nil value is a null value, an empty one is an empty value. Keys may repeat.
func (h *Headers) Add(key string, value []byte) {
	h.block = binary.AppendVarint(h.block, int64(len(key)))
	h.block = append(h.block, key...)
	if value == nil {
		h.block = binary.AppendVarint(h.block, -1)
	} else {
		h.block = binary.AppendVarint(h.block, int64(len(value)))
		h.block = append(h.block, value...)
	}
	h.count++
}

// Len is the number of headers.
func (h Headers) Len() int { return h.count }

// Block is the encoded form described at [Headers]; the caller must not change it.
func (h Headers) Block() []byte { return h.block }

// All yields the headers in order. The values alias the block.
func (h Headers) All() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		rest := h.block
		for range h.count {
			n, used := binary.Varint(rest)
			key := string(rest[used : used+int(n)])
			rest = rest[used+int(n):]
			n, used = binary.Varint(rest)
			rest = rest[used:]
			var value []byte
			if n >= 0 {
				value = rest[:n:n]
				rest = rest[n:]
			}
			if !yield(key, value) {
				return
			}
		}
	}
}

// Get is the value of the last header with the key, and whether there is one.
func (h Headers) Get(key string) (value []byte, found bool) {
	for k, v := range h.All() {
		if k == key {
			value, found = v, true
		}
	}
	return value, found
}
