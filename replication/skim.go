package replication

import (
	"encoding/binary"
	"io"
)

// valueSkipped stands, in a row that was skimmed, where pgoutput has 't': the column's value was not kept. Its length
// follows, as it does there.
const valueSkipped = 'x'

const (
	// rowSlack allows for a row's bytes beyond its values: the frame of the message and of its columns.
	rowSlack = 64 << 10
	// alwaysKept is the length of a value that is kept however many there are: ids and keys are short.
	alwaysKept = 8 << 10
)

// skim reads one message of the stream that is larger than what may be kept, piece by piece, and leaves out the values
// with which it would be: what is left has the form of the message, with valueSkipped for the values. It knows the
// frames of pgoutput ("Logical Replication Message Formats") and not what is in a table. What it does not understand it
// keeps as it is, for the decoder to refuse.
type skim struct {
	left    int // bytes of the message that are still to come
	need    int // of these, to be kept before then is asked
	drop    int // to be left out, before anything else
	budget  int // bytes of values that may still be kept
	out     []byte
	then    func() // what follows when need is there
	columns int    // of the row, still to come
	update  bool   // another row may follow
	buffer  []byte
}

// walHeader is the frame of WAL data in a CopyData: 'w', start, end, time.
const walHeader = 1 + 8 + 8 + 8

func newSkim(size, most int) *skim {
	s := &skim{left: size, need: walHeader + 1, budget: most, buffer: make([]byte, chunkSize)}
	s.then = s.message
	return s
}

// feed takes the next bytes of the message.
func (s *skim) feed(b []byte) {
	for len(b) > 0 {
		n := 0
		switch {
		case s.drop > 0:
			n = min(s.drop, len(b))
			s.drop -= n
		case s.need > 0:
			n = min(s.need, len(b))
			s.out = append(s.out, b[:n]...)
			s.need -= n
		default:
			s.then()
		}
		s.left -= n
		b = b[n:]
	}
}

// read feeds what one read gives.
func (s *skim) read(src io.Reader) error {
	n, err := src.Read(s.buffer[:min(len(s.buffer), s.left)])
	s.feed(s.buffer[:n])
	if n > 0 {
		return nil
	}
	if err == nil {
		return io.ErrNoProgress
	}
	return err
}

func (s *skim) done() bool { return s.left == 0 }

// want asks for so many bytes, and then for what follows them.
func (s *skim) want(n int, then func()) { s.need, s.then = n, then }

// rest keeps what is left as it is.
func (s *skim) rest() { s.want(max(s.left, 1), s.rest) }

func (s *skim) last() byte { return s.out[len(s.out)-1] }

// message has read the frame and the type of the message.
func (s *skim) message() {
	switch s.last() {
	case 'I', 'U', 'D':
		s.update = s.last() == 'U'
		s.want(4+1, s.tuple) // the relation, and which row follows
	case 'M':
		s.want(1+8+1, s.prefix)
	default:
		s.rest()
	}
}

// tuple has read which row follows: 'N' the new one, 'K' or 'O' the old one.
func (s *skim) tuple() {
	s.update = s.update && s.last() != 'N'
	s.want(2, func() {
		s.columns = int(binary.BigEndian.Uint16(s.out[len(s.out)-2:]))
		s.column()
	})
}

func (s *skim) column() {
	switch {
	case s.columns > 0:
		s.columns--
		s.want(1, s.kind)
	case s.update:
		s.want(1, s.tuple)
	default:
		s.rest()
	}
}

func (s *skim) kind() {
	if s.last() == 't' {
		s.want(4, s.value)
		return
	}
	s.column()
}

// value has read a value's length.
func (s *skim) value() {
	n := int(binary.BigEndian.Uint32(s.out[len(s.out)-4:]))
	if n > s.left {
		s.rest() // cut, as the decoder will find
		return
	}
	if n > s.budget && n > alwaysKept {
		s.out[len(s.out)-5] = valueSkipped
		s.drop = n
		s.column()
		return
	}
	s.budget -= n
	s.want(n, s.column)
}

// prefix reads the prefix of a logical message, which ends with a zero byte, and keeps none of the content: the relay's
// own are short.
func (s *skim) prefix() {
	if s.last() != 0 {
		s.want(1, s.prefix)
		return
	}
	s.want(4, func() {
		length := s.out[len(s.out)-4:]
		s.drop = int(binary.BigEndian.Uint32(length))
		clear(length)
		s.rest()
	})
}
