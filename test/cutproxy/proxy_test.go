package cutproxy_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cdc-relay/cdc-relay/test/cutproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broker answers each frame with the same frame, and tells what it got.
type broker struct {
	listener net.Listener
	got      chan []byte // whole requests
	torn     chan int    // bytes of a request whose rest never came
}

func newBroker(t *testing.T) *broker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{listener: l, got: make(chan []byte, 16), torn: make(chan int, 16)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go b.serve(c)
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-ended })
	return b
}

func (b *broker) serve(c net.Conn) {
	defer c.Close()
	for {
		var length [4]byte
		if _, err := io.ReadFull(c, length[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(length[:]))
		if n, err := io.ReadFull(c, frame); err != nil {
			b.torn <- n
			return
		}
		b.got <- frame
		_, _ = c.Write(append(length[:], frame...))
	}
}

// request is a frame with the api key and a body.
func request(key int16, body string) []byte {
	frame := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
	frame = binary.BigEndian.AppendUint16(frame, uint16(key))
	frame = binary.BigEndian.AppendUint16(frame, 8) // version
	frame = binary.BigEndian.AppendUint32(frame, 1) // correlation id
	return append(frame, body...)
}

// each runs a test with a connection through a proxy that does the action to Produce requests.
func each(t *testing.T, action cutproxy.Action, test func(t *testing.T, b *broker, p *cutproxy.Proxy, c net.Conn)) {
	t.Helper()
	b := newBroker(t)
	p := cutproxy.New(func(r cutproxy.Request) cutproxy.Action {
		if r.APIKey != 0 {
			return cutproxy.Action{}
		}
		return action
	})
	c, err := p.Dial(context.Background(), "tcp", b.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	test(t, b, p, c)
	_ = c.Close()
	if err := p.Close(); err != nil {
		t.Errorf("close the proxy: %v", err)
	}
}

func send(t *testing.T, c net.Conn, frame []byte) {
	t.Helper()
	if _, err := c.Write(frame); err != nil {
		t.Fatalf("write: %v", err)
	}
}

// answer reads until the connection closes or n bytes came.
func answer(c net.Conn, n int) (read int, err error) {
	return io.ReadFull(c, make([]byte, n))
}

// Breaks when the proxy changes a frame, or acts on requests that the policy passes. Seen to fail with a byte of each
// frame changed.
func TestPassForwardsRequestsAndAnswersUnchanged(t *testing.T) {
	each(t, cutproxy.Action{Kind: cutproxy.InRequest}, func(t *testing.T, b *broker, p *cutproxy.Proxy, c net.Conn) {
		want := request(3, "metadata")
		send(t, c, want)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != string(want) {
			t.Errorf("answer: got %q, %v, want %q", got, err, want)
		}
		if p.Cuts() != 0 || p.Count(cutproxy.Pass) != 1 {
			t.Errorf("counts: got %d cuts and %d passed, want 0 and 1", p.Cuts(), p.Count(cutproxy.Pass))
		}
	})
}

// Breaks when the whole request, or none of it, reaches the broker. Seen to fail with the whole request delivered.
func TestInRequestDeliversHalf(t *testing.T) {
	each(t, cutproxy.Action{Kind: cutproxy.InRequest}, func(t *testing.T, b *broker, p *cutproxy.Proxy, c net.Conn) {
		send(t, c, request(0, "0123456789"))
		if n, err := answer(c, 1); err == nil {
			t.Errorf("answer: got %d bytes, want a broken connection", n)
		}
		select {
		case got := <-b.torn:
			if got != 7 {
				t.Errorf("torn request: got %d bytes of 18, want 7", got)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("no request was torn")
		}
		if p.Count(cutproxy.InRequest) != 1 || p.Cuts() != 1 {
			t.Errorf("counts: got %d of %d cuts, want 1 of 1", p.Count(cutproxy.InRequest), p.Cuts())
		}
	})
}

// Breaks when the connection is cut before the broker has the request, or the answer gets through. Seen to fail with
// the answer forwarded.
func TestAfterDeliveryLosesOnlyTheAnswer(t *testing.T) {
	each(t, cutproxy.Action{Kind: cutproxy.AfterDelivery}, func(t *testing.T, b *broker, _ *cutproxy.Proxy, c net.Conn) {
		send(t, c, request(0, "0123456789"))
		if n, err := answer(c, 1); err == nil {
			t.Errorf("answer: got %d bytes, want a broken connection", n)
		}
		if got := <-b.got; len(got) != 18 {
			t.Errorf("delivered: got %d bytes, want 18", len(got))
		}
	})
}

// Breaks when the answer comes whole or not at all. Seen to fail with the whole answer forwarded.
func TestInAnswerDeliversHalfOfIt(t *testing.T) {
	each(t, cutproxy.Action{Kind: cutproxy.InAnswer}, func(t *testing.T, _ *broker, _ *cutproxy.Proxy, c net.Conn) {
		send(t, c, request(0, "0123456789"))
		if n, err := answer(c, 22); n != 11 || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("answer: got %d bytes, %v, want 11 bytes and a broken connection", n, err)
		}
	})
}

// Breaks when a withheld answer closes the client's connection or reaches it. Seen to fail with the connection closed
// instead.
func TestWithholdKeepsTheConnectionSilent(t *testing.T) {
	each(t, cutproxy.Action{Kind: cutproxy.Withhold}, func(t *testing.T, b *broker, _ *cutproxy.Proxy, c net.Conn) {
		send(t, c, request(0, "0123456789"))
		<-b.got
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		var timeout net.Error
		if n, err := answer(c, 1); n != 0 || !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("answer: got %d bytes, %v, want silence", n, err)
		}
	})
}

// Breaks when a late request is dropped with its client's connection, or comes before the connection broke. Seen to
// fail with no delay, and with the late request dropped.
func TestLateDeliversAfterTheClientIsGone(t *testing.T) {
	late := cutproxy.Action{Kind: cutproxy.Late, Delay: 50 * time.Millisecond}
	each(t, late, func(t *testing.T, b *broker, _ *cutproxy.Proxy, c net.Conn) {
		began := time.Now()
		send(t, c, request(0, "0123456789"))
		if n, err := answer(c, 1); err == nil {
			t.Errorf("answer: got %d bytes, want a broken connection", n)
		}
		select {
		case got := <-b.got:
			if len(got) != 18 {
				t.Errorf("delivered: got %d bytes, want 18", len(got))
			}
		case <-time.After(5 * time.Second):
			t.Fatal("the late request was never delivered")
		}
		if took := time.Since(began); took < late.Delay {
			t.Errorf("delivered after %v, want at least %v", took, late.Delay)
		}
	})
}
