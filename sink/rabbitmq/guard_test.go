package rabbitmq

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

func frameOf(kind byte, channel uint16, payload ...byte) []byte {
	b := binary.BigEndian.AppendUint16([]byte{kind}, channel)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	return append(append(b, payload...), 0xce)
}

// answers are a server's, by class and method of what it answers; the first is that to the protocol's name.
func answers() map[[4]byte][]byte {
	const plain, english = "\x00\x00\x00\x05PLAIN", "\x00\x00\x00\x05en_US"
	return map[[4]byte][]byte{
		{}:             frameOf(frameMethod, 0, []byte("\x00\x0a\x00\x0a\x00\x09\x00\x00\x00\x00"+plain+english)...),
		{0, 10, 0, 11}: frameOf(frameMethod, 0, 0, 10, 0, 30, 7, 0xff, 0, 2, 0, 0, 0, 0),
		{0, 10, 0, 40}: frameOf(frameMethod, 0, 0, 10, 0, 41, 0),
		{0, 20, 0, 10}: frameOf(frameMethod, 1, 0, 20, 0, 11, 0, 0, 0, 0),
		{0, 85, 0, 10}: frameOf(frameMethod, 1, 0, 85, 0, 11),
		{0, 60, 0, 40}: frameOf(frameMethod, 1, 0, 60, 0, 80, 0, 0, 0, 0, 0, 0, 0, 1, 0),
	}
}

// serve answers one connection.
func serve(conn net.Conn, said map[[4]byte][]byte) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	head := make([]byte, 8)
	if _, err := io.ReadFull(r, head); err != nil {
		return
	}
	_, _ = conn.Write(said[[4]byte{}])
	for {
		if _, err := io.ReadFull(r, head[:frameHead]); err != nil {
			return
		}
		payload := make([]byte, binary.BigEndian.Uint32(head[3:])+1)
		if _, err := io.ReadFull(r, payload); err != nil {
			return
		}
		if head[0] == frameMethod {
			_, _ = conn.Write(said[[4]byte(payload)])
		}
	}
}

// publish sends a message to a server that answers so, and waits for its confirm.
func publish(t testing.TB, said map[[4]byte][]byte) error {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if conn, err := l.Accept(); err == nil {
			serve(conn, said)
		}
	}()
	c := Config{URL: "amqp://guest:guest@" + l.Addr().String(), DialTimeout: 300 * time.Millisecond,
		RequestTimeout: time.Second, Dial: net.DialTimeout}
	conn, err := c.dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.CloseDeadline(time.Now().Add(100 * time.Millisecond)) }()
	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	done := make(chan error, 1)
	go func() {
		channel, err := conn.Channel()
		if err == nil {
			err = channel.Confirm(false)
		}
		var fate *amqp.DeferredConfirmation
		if err == nil {
			fate, err = channel.PublishWithDeferredConfirmWithContext(t.Context(), "x", "k", true, false, amqp.Publishing{})
		}
		if err == nil {
			var acked bool
			if acked, err = fate.WaitContext(t.Context()); err == nil && !acked {
				err = errors.New("not confirmed") // the client ends the wait so when its connection ends
			}
		}
		done <- err
	}()
	select {
	case err = <-done:
	case said := <-closed:
		err = said
	case <-time.After(500 * time.Millisecond): // a server that says nothing more
		err = errors.New("no answer")
	}
	return err
}

// A server's frames are lies. Breaks it catches: the process ends in the client's own goroutine, or counts there
// forever. Seen to fail without the guard: it counts until the test times out.
func TestDamagedAnswersCostTheirConnection(t *testing.T) {
	if err := publish(t, answers()); err != nil {
		t.Fatalf("a server that is in order: %v", err)
	}
	confirm := [4]byte{0, 60, 0, 40}
	for name, lie := range map[string][]byte{
		"a heartbeat on a channel": frameOf(frameHeartbeat, 1),
		"a confirm of all numbers": frameOf(frameMethod, 1, 0, 60, 0, 80, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1),
		"a refusal of many":        frameOf(frameMethod, 1, 0, 60, 0, 120, 0, 0, 1, 0, 0, 0, 0, 0, 1),
		"a frame of 4 GiB":         {frameBody, 0, 1, 0xff, 0xff, 0xff, 0xff, 'x'},
		"another service":          []byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
	} {
		said := answers()
		said[confirm] = lie
		if err := publish(t, said); err == nil {
			t.Errorf("%s: got no error", name)
		}
		said[[4]byte{}] = lie
		if err := publish(t, said); err == nil {
			t.Errorf("%s at first: got no error", name)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range harness.Count(t, "damaged answers of RabbitMQ") {
		said := answers()
		for _, answer := range said {
			if random.IntN(3) == 0 {
				answer[random.IntN(len(answer))] = byte(random.Uint32())
			}
		}
		_ = publish(t, said)
	}
}

// Breaks it catches: a frame that is refused though it is in order, one that is cut where its parts meet. Seen to fail
// with a frame's end not counted.
func TestTheGuardLetsFramesPassAsTheyAre(t *testing.T) {
	said := string(frameOf(frameMethod, 1, 0, 60, 0, 80, 0, 0, 0, 0, 0, 0, 0, 2, 1)) + string(frameOf(frameHeartbeat, 0)) +
		string(frameOf(frameBody, 3, make([]byte, 5000)...)) + string(frameOf(frameMethod, 1, 0, 85, 0, 11))
	for most := 1; most < 30; most++ {
		g := newGuard(piecemeal{r: strings.NewReader(said), most: most})
		g.written.Store(2 * leastPublish)
		if got, err := io.ReadAll(g); err != nil || string(got) != said {
			t.Errorf("%d bytes at a time: got %d bytes, %v, want %d", most, len(got), err, len(said))
		}
	}
	g := newGuard(piecemeal{r: strings.NewReader(said), most: 1})
	if _, err := io.ReadAll(g); !errors.Is(err, errNotAMQP) {
		t.Errorf("a confirm of nothing: got %v, want %v", err, errNotAMQP)
	}
}

// piecemeal gives so many bytes at a time.
type piecemeal struct {
	net.Conn
	r    io.Reader
	most int
}

func (p piecemeal) Read(b []byte) (int, error) { return p.r.Read(b[:min(p.most, len(b))]) }
func (piecemeal) Close() error                 { return nil }
