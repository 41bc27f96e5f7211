package replication

import (
	"encoding/binary"
	"fmt"
	"io"
)

// chunkSize is how much is read from the connection at once and how much memory one unsettled event can hold back.
const chunkSize = 64 << 10

// smallestRead is the free space below which a new chunk is begun rather than a tiny read made.
const smallestRead = 4 << 10

// maxMessage bounds one protocol message. Postgres cannot send more than 1 GiB.
const maxMessage = 1 << 30

// messageReader lets pgproto3's frontend have one protocol message at a time and nothing of the next one. So, when the
// stream begins, no bytes of it are lost in the frontend's buffer and the frameReader can go on below it.
type messageReader struct {
	src    io.Reader
	header [5]byte
	have   int // bytes of the header that were read
	given  int // bytes of the header that were handed out
	body   int // bytes of the body still to hand out
}

// Read hands out what is left of the current message.
func (m *messageReader) Read(p []byte) (int, error) {
	if m.given == len(m.header) && m.body > 0 {
		n, err := m.src.Read(p[:min(len(p), m.body)])
		m.body -= n
		return n, err
	}
	if m.given == len(m.header) {
		m.have, m.given = 0, 0
	}
	for m.have < len(m.header) {
		n, err := m.src.Read(m.header[m.have:])
		m.have += n
		if err != nil {
			return 0, err
		}
	}
	if m.given == 0 {
		m.body = max(int(int32(binary.BigEndian.Uint32(m.header[1:])))-4, 0)
	}
	n := copy(p, m.header[m.given:])
	m.given += n
	return n, nil
}

// frameReader cuts a byte stream into protocol messages without copying them: it reads into chunks and hands out
// slices of them. A chunk is never written twice, so what was handed out stays valid for as long as someone holds it.
type frameReader struct {
	src   io.Reader
	chunk []byte
	r, w  int // chunk[r:w] was read and not yet handed out
}

// next returns the next message if all of it was read.
func (f *frameReader) next() (kind byte, body []byte, ok bool, err error) {
	size, known, err := f.size()
	if err != nil || !known || f.w-f.r < size {
		return 0, nil, false, err
	}
	kind, body = f.chunk[f.r], f.chunk[f.r+5:f.r+size:f.r+size]
	f.r += size
	return kind, body, true, nil
}

// size is the whole length of the message at the read position, once its header was read.
func (f *frameReader) size() (n int, known bool, err error) {
	if f.w-f.r < 5 {
		return 0, false, nil
	}
	length := binary.BigEndian.Uint32(f.chunk[f.r+1:])
	if length < 4 || length > maxMessage {
		return 0, false, fmt.Errorf("read from server: message %q claims a length of %d bytes", f.chunk[f.r], length)
	}
	return int(length) + 1, true, nil
}

// fill reads once from the source, at least as much as fits, after making room for the message that is incomplete.
func (f *frameReader) fill() error {
	size, known, err := f.size()
	if err != nil {
		return err
	}
	if !known {
		size = 5
	}
	if missing := size - (f.w - f.r); len(f.chunk)-f.w < max(missing, smallestRead) {
		// The rest of an incomplete message moves; a large one gets a chunk of just its size.
		next := make([]byte, max(chunkSize, size))
		f.w = copy(next, f.chunk[f.r:f.w])
		f.r = 0
		f.chunk = next
	}
	n, err := f.src.Read(f.chunk[f.w:])
	f.w += n
	if n > 0 {
		return nil // the error, if it stays, comes again
	}
	if err == nil {
		return io.ErrNoProgress
	}
	return err
}
