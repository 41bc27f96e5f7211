package wire

import (
	"encoding/binary"
	"errors"
)

// Sequence is the last publishing id that the stream has under the name.
func (c *Conn) Sequence(name, stream string) (uint64, error) {
	c.question(querySequence)
	c.text(name)
	c.text(stream)
	r, err := c.ask(nil)
	if err != nil {
		return 0, err
	}
	last := r.number(8)
	return last, r.err
}

// Declare makes the connection one that publishes to the stream under the name.
func (c *Conn) Declare(name, stream string) error {
	c.question(declarePublisher)
	c.out = append(c.out, publisherID)
	c.text(name)
	c.text(stream)
	_, err := c.ask(nil)
	return err
}

// Create makes the stream.
func (c *Conn) Create(stream string, arguments map[string]string) error {
	c.question(createStream)
	c.text(stream)
	c.texts(arguments)
	_, err := c.ask(nil)
	if errors.Is(err, Answer(codeStreamExists)) {
		return nil
	}
	return err
}

const (
	// FrameHead is the size of a frame without its messages.
	FrameHead = 4 + 2 + 2 + 1 + 4
	// EntrySize is the overhead of a message in a frame: publishing id and length.
	EntrySize = 12
)

// Publish begins a frame of messages.
func (c *Conn) Publish() {
	c.begin(publish)
	c.out = append(c.out, publisherID, 0, 0, 0, 0)
}

// Add adds a message to the frame, unless it is not the first one and there is no room.
func (c *Conn) Add(id uint64, message func([]byte) []byte) bool {
	begin := len(c.out)
	c.out = binary.BigEndian.AppendUint64(c.out, id)
	c.out = message(append(c.out, 0, 0, 0, 0))
	binary.BigEndian.PutUint32(c.out[begin+8:], uint32(len(c.out)-begin-EntrySize))
	n := c.out[FrameHead-4 : FrameHead]
	if len(c.out) > c.FrameLimit && binary.BigEndian.Uint32(n) > 0 {
		c.out = c.out[:begin]
		return false
	}
	binary.BigEndian.PutUint32(n, binary.BigEndian.Uint32(n)+1)
	return true
}

// Confirms reads until so many ids from first on are confirmed.
func (c *Conn) Confirms(first uint64, n int) error {
	for n > 0 {
		f, err := c.read()
		if err != nil {
			return err
		}
		r := fields{rest: f.body}
		switch f.command {
		case publishConfirm:
			r.number(1)
			for count := r.number(4); count > 0 && r.err == nil; count-- {
				if r.number(8) >= first {
					n--
				}
			}
		case publishError:
			r.number(1)
			if r.number(4) > 0 {
				r.number(8)
				return Answer(r.number(2))
			}
		}
		if r.err != nil {
			return r.err
		}
	}
	return nil
}
