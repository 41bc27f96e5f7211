package replication

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
)

// chunkSize bounds a read from the connection, in bytes, and the memory that one retained message can hold
// back.
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

// chunk is a piece of the stream as it was read. The reader that fills it uses it, and so do the batches whose messages
// lie in it; once none does, it is filled again. At full speed the stream would else be most of the garbage there is.
type chunk struct {
	data  []byte
	users atomic.Int32
}

var chunks = sync.Pool{New: func() any { return &chunk{data: make([]byte, chunkSize)} }}

// newChunk has one user. A message that is larger gets a chunk of just its size, which is not used again.
func newChunk(size int) *chunk {
	c := &chunk{}
	if size <= chunkSize {
		c = chunks.Get().(*chunk)
	} else {
		c.data = make([]byte, size)
	}
	c.users.Store(1)
	return c
}

func (c *chunk) release() {
	switch left := c.users.Add(-1); {
	case left < 0:
		panic("replication: a piece of the stream was released twice")
	case left == 0 && len(c.data) == chunkSize:
		poison(c.data)
		chunks.Put(c)
	}
}

// frameReader cuts a byte stream into protocol messages without copying them: it reads into chunks and hands out
// slices of them. Nothing in a chunk is written twice while it has a user.
type frameReader struct {
	src   io.Reader
	chunk *chunk // nil before the first read
	r, w  int    // chunk.data[r:w] was read and not yet handed out
	most  int    // bytes of values that a message may hold; 0: what the protocol allows
	skim  *skim  // of a message that is larger; nil: none is being read
}

// next returns the next message if all of it was read.
func (f *frameReader) next() (kind byte, body []byte, ok bool, err error) {
	if f.skim != nil {
		if !f.skim.done() {
			return 0, nil, false, nil
		}
		body, f.skim = f.skim.out, nil
		return 'd', body, true, nil
	}
	size, known, err := f.size()
	if err != nil || !known || f.w-f.r < size {
		return 0, nil, false, err
	}
	kind, body = f.chunk.data[f.r], f.chunk.data[f.r+5:f.r+size:f.r+size]
	f.r += size
	return kind, body, true, nil
}

// size is the whole length of the message at the read position, once its header was read.
func (f *frameReader) size() (n int, known bool, err error) {
	if f.w-f.r < 5 {
		return 0, false, nil
	}
	length := binary.BigEndian.Uint32(f.chunk.data[f.r+1:])
	if length < 4 || length > maxMessage {
		return 0, false, fmt.Errorf("read from server: message %q claims a length of %d bytes", f.chunk.data[f.r], length)
	}
	return int(length) + 1, true, nil
}

// fill reads once from the source, at least as much as fits, after making room for the message that is incomplete.
func (f *frameReader) fill() error {
	if f.skim != nil {
		return f.skim.read(f.src)
	}
	size, known, err := f.size()
	if err != nil {
		return err
	}
	if known && f.most > 0 && size > f.most+rowSlack && f.chunk.data[f.r] == 'd' {
		f.skim = newSkim(size-5, f.most)
		f.skim.feed(f.chunk.data[f.r+5 : f.w]) // the message is not whole, so that all of it belongs to it
		f.r = f.w
		return f.skim.read(f.src)
	}
	if !known {
		size = 5
	}
	if missing := size - (f.w - f.r); f.chunk == nil || len(f.chunk.data)-f.w < max(missing, smallestRead) {
		// The rest of an incomplete message moves.
		next := newChunk(size)
		if f.chunk != nil {
			f.w = copy(next.data, f.chunk.data[f.r:f.w])
			f.chunk.release()
		}
		f.r, f.chunk = 0, next
	}
	n, err := f.src.Read(f.chunk.data[f.w:])
	f.w += n
	if n > 0 {
		return nil // the error, if it stays, comes again
	}
	if err == nil {
		return io.ErrNoProgress
	}
	return err
}
