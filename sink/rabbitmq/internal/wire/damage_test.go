package wire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// deaf is the side of a connection on which no one listens.
type deaf struct{ net.Conn }

func (deaf) Write(p []byte) (int, error)     { return len(p), nil }
func (deaf) SetDeadline(time.Time) error     { return nil }
func (deaf) SetReadDeadline(time.Time) error { return nil }
func (deaf) Close() error                    { return nil }

// answering is a connection whose server says that, whatever it is asked.
func answering(said []byte) *Conn {
	return &Conn{Conn: deaf{}, reader: bufio.NewReader(bytes.NewReader(said)), patience: time.Second,
		FrameLimit: DefaultFrameLimit}
}

// questions are the driver's requests.
var questions = []func(*Conn) error{
	func(c *Conn) error { return c.login(&Options{User: "guest"}) },
	func(c *Conn) error { return c.Stream("s") },
	func(c *Conn) error { return c.Declare("p", "s") },
	func(c *Conn) error { _, err := c.Sequence("p", "s"); return err },
	func(c *Conn) error { return c.Confirms(1, 3) },
	func(c *Conn) error {
		return c.ReadUpTo(context.Background(), "s", Start{Kind: FromFirst}, 5, func(_ int64, message []byte) error {
			_, _ = Body(message)
			return Pick(message, func(_, _ []byte) {})
		})
	},
}

func frameOf(command uint16, body ...byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(4+len(body)))
	b = binary.BigEndian.AppendUint16(b, command)
	return append(binary.BigEndian.AppendUint16(b, protocolVersion), body...)
}

// dialogue is a stream of frames: answers to any of the questions, confirms, and a chunk with a message.
func dialogue() []byte {
	var b []byte
	ok := func(command uint16, more ...byte) {
		b = append(b, frameOf(command|responseBit, append([]byte{0, 0, 0, 1, 0, 1}, more...)...)...)
	}
	ok(peerProperties, 0, 0, 0, 1, 0, 1, 'a', 0, 1, 'b')
	ok(declarePublisher)
	ok(querySequence, 0, 0, 0, 0, 0, 0, 0, 9)
	ok(subscribe)
	b = append(b, frameOf(metadata|responseBit, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 's', 0, 1)...)
	b = append(b, frameOf(publishConfirm, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1)...)
	message := []byte{0, 0x53, applicationProperties, 0xc1, 7, 2, string8, 1, 'a', string8, 1, 'b'}
	chunk := make([]byte, 0, 80)
	chunk = append(chunk, subscription, 0, 0, 0, 1, 0, 0, 0, 1)
	chunk = append(chunk, make([]byte, 8+8+8+4)...)
	chunk = binary.BigEndian.AppendUint32(chunk, uint32(4+len(message)))
	chunk = append(chunk, make([]byte, 8)...)
	chunk = binary.BigEndian.AppendUint32(chunk, uint32(len(message)))
	return append(b, frameOf(deliver, append(chunk, message...)...)...)
}

// wantBounded asks each question of a server that says that.
func wantBounded(t *testing.T, said []byte) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, ask := range questions {
		_ = ask(answering(said))
	}
	runtime.ReadMemStats(&after)
	if took, most := after.TotalAlloc-before.TotalAlloc, uint64(4<<20+2000*len(said)); took > most {
		t.Errorf("%d bytes of answers took %d bytes of memory, more than %d", len(said), took, most)
	}
}

// Whole exchanges with a server whose answers are damaged: each question ends with an error, and takes no memory that
// has not arrived. Seen to fail with a frame's buffer made as large as the frame says.
func TestDamagedAnswersTakeNoMemory(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range harness.Count(t, "damaged answers") {
		said := dialogue()
		for range 1 + random.IntN(4) {
			at := random.IntN(len(said) - 4)
			switch random.IntN(3) {
			case 0:
				binary.BigEndian.PutUint32(said[at:], []uint32{0, 0xffffffff, 0x7fffffff, 1 << 20, 1 << 30}[random.IntN(5)])
			case 1:
				said[at] = byte(random.Uint32())
			case 2:
				said = said[:at+4]
			}
			if len(said) < 8 {
				break
			}
		}
		wantBounded(t, said)
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add(dialogue())
	f.Fuzz(wantBounded)
}
