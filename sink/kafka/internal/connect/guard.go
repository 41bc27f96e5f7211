package connect

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// mostAnswer is the largest answer that is read, in bytes: the metadata of 10,000 topics have about 10 MiB, and a Fetch
// is asked for less.
const mostAnswer = 64 << 20

// keptFrame is up to which size a connection keeps the buffer of an answer for the next one.
const keptFrame = 1 << 20

// ErrNotKafka ends a connection whose answer does not have the form of the one that was asked for.
var ErrNotKafka = errors.New("what answers does not speak Kafka's protocol, or the answer was damaged on its way")

// guard stands between a connection and kafka-go, which believes the sizes and counts of an answer: it allocates what
// they say, and panics on negative ones, in a goroutine of its own where nothing can recover. The guard reads an answer
// as a whole, never more than has arrived, and passes it on only if each size and count in it fits into its bytes.
//
// Answers come in the order of their requests, so that the guard knows what each has to look like.
type guard struct {
	head []byte // of the request that is being written, until its type is known; of the goroutine that writes
	left int    // bytes of that request that are still to come; likewise

	// Of the goroutine that reads.
	buffer bytes.Buffer
	frame  []byte // of buffer, what was not passed on yet
	broken error

	mu  sync.Mutex
	out []shapeKey // requests without an answer
}

// requestHead is the length, type, version and id of a request.
const requestHead = 12

// wrote notes what goes to the broker.
func (g *guard) wrote(p []byte) {
	for len(p) > 0 {
		if g.left > 0 {
			n := min(g.left, len(p))
			g.left -= n
			p = p[n:]
			continue
		}
		n := min(requestHead-len(g.head), len(p))
		g.head = append(g.head, p[:n]...)
		p = p[n:]
		if len(g.head) < requestHead {
			return
		}
		g.left = max(int(binary.BigEndian.Uint32(g.head))+4-requestHead, 0)
		asked := shapeKey{
			protocol.ApiKey(int16(binary.BigEndian.Uint16(g.head[4:]))), int16(binary.BigEndian.Uint16(g.head[6:])),
		}
		g.head = g.head[:0]
		g.mu.Lock()
		g.out = append(g.out, asked)
		g.mu.Unlock()
	}
}

// asked is the request that the next answer belongs to.
func (g *guard) asked() (asked shapeKey, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.out) == 0 {
		return asked, false
	}
	asked = g.out[0]
	g.out = slices.Delete(g.out, 0, 1)
	return asked, true
}

// read passes an answer on that was looked at.
func (g *guard) read(from io.Reader, p []byte) (int, error) {
	if len(g.frame) == 0 {
		if g.broken == nil {
			g.broken = g.next(from)
		}
		if g.broken != nil {
			return 0, g.broken
		}
	}
	n := copy(p, g.frame)
	g.frame = g.frame[n:]
	return n, nil
}

// next reads the next answer.
func (g *guard) next(from io.Reader) error {
	var head [4]byte
	if n, err := io.ReadFull(from, head[:]); err != nil {
		if n > 0 && errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%w: it ends within its length", ErrNotKafka)
		}
		return err
	}
	size := int32(binary.BigEndian.Uint32(head[:]))
	if size < 4 || size > mostAnswer {
		return fmt.Errorf("%w: its length is %d (%q)", ErrNotKafka, size, head[:])
	}
	if g.buffer.Cap() > keptFrame {
		g.buffer = bytes.Buffer{}
	}
	g.buffer.Reset()
	g.buffer.Write(head[:])
	if _, err := io.CopyN(&g.buffer, from, int64(size)); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	asked, known := g.asked()
	if !known {
		return fmt.Errorf("%w: it answers, and was not asked", ErrNotKafka)
	}
	if err := inspect(g.buffer.Bytes(), asked.key, asked.version); err != nil {
		return fmt.Errorf("%w: answer to %s v%d: %w", ErrNotKafka, asked.key, asked.version, err)
	}
	g.frame = g.buffer.Bytes()
	return nil
}

// inspect looks at an answer, its length first.
func inspect(frame []byte, key protocol.ApiKey, version int16) error {
	if shape, known := shapeOf(key, version); known {
		if err := shape.fits(frame[4:]); err != nil {
			return err
		}
		if key != protocol.Metadata && key != protocol.Fetch {
			return nil
		}
	}
	m, err := decode(frame, key, version)
	if err != nil {
		return err
	}
	if r, is := m.(*metadata.Response); is {
		return plausible(r)
	}
	return nil
}

// decode lets kafka-go read the answer; nil if it cannot. The error reports a panic.
func decode(frame []byte, key protocol.ApiKey, version int16) (m protocol.Message, err error) {
	defer func() {
		if p := recover(); p != nil {
			m, err = nil, fmt.Errorf("the library panics on it: %v", p)
		}
	}()
	if _, m, err = protocol.ReadResponse(bytes.NewReader(frame), key, version); err != nil {
		return nil, nil // kafka-go says so itself, and to whom it concerns
	}
	return m, nil
}

// plausible refuses brokers that kafka-go would take for several, or that cannot be connected to.
func plausible(r *metadata.Response) error {
	for _, b := range r.Brokers {
		host := strings.TrimSuffix(strings.TrimPrefix(b.Host, "["), "]")
		bad := strings.IndexFunc(host, func(c rune) bool {
			return c <= ' ' || c > '~' || strings.ContainsRune(",/@?#\\\"'<>", c)
		})
		if bad >= 0 || len(host) > 255 || strings.Contains(host, ":") && net.ParseIP(strings.SplitN(host, "%", 2)[0]) == nil {
			return fmt.Errorf("broker %d has the host %.260q", b.NodeID, b.Host)
		}
		if b.Port < 0 || b.Port > 65535 {
			return fmt.Errorf("broker %d has port %d", b.NodeID, b.Port)
		}
	}
	return nil
}

// recovered makes a panic of the library's, in a goroutine of ours, the error of the exchange.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: the library panics on it: %v", ErrNotKafka, p)
	}
}
