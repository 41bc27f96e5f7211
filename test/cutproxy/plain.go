package cutproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
)

// Plain is a proxy for connections of any protocol. It knows no requests: it breaks connections between what the client
// has sent and what the server answers to that.
type Plain struct {
	Addr string // host:port, where clients connect

	listener net.Listener
	dialer   net.Dialer
	running  sync.WaitGroup
	ended    context.Context
	end      context.CancelFunc

	mu     sync.Mutex // guards what follows
	target string
	open   map[net.Conn]struct{}
	lose   int  // so many answers are still to be lost
	torn   int  // so many chunks of clients are still to be torn in the middle
	away   bool // no connection gets through
	cuts   int
}

// NewPlain opens a port on the loopback interface that leads to the target. Close it at the end.
func NewPlain(target string) (*Plain, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", target, err)
	}
	p := &Plain{Addr: l.Addr().String(), target: target, listener: l, open: make(map[net.Conn]struct{})}
	p.ended, p.end = context.WithCancel(context.Background())
	p.running.Go(p.accept)
	return p, nil
}

// StartPlain is NewPlain for a test, at whose end it is closed.
func StartPlain(t testing.TB, target string) *Plain {
	t.Helper()
	p, err := NewPlain(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// LoseAnswers breaks the next n connections on which a client has sent something from now on, when the server answers:
// the server has it, and the client never hears of it.
func (p *Plain) LoseAnswers(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = n
}

// Tear breaks the connections of the next n chunks that clients send, in the middle of the chunk.
func (p *Plain) Tear(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.torn = n
}

// Cut breaks every connection.
func (p *Plain) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts += len(p.open) / 2
	for c := range p.open {
		_ = c.Close()
	}
}

// Outage breaks every connection and lets none through until end is called.
func (p *Plain) Outage() (end func()) {
	p.setAway(true)
	p.Cut()
	return func() { p.setAway(false) }
}

// Lead makes connections lead to another target from now on. Open ones stay where they are.
func (p *Plain) Lead(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

func (p *Plain) setAway(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = away
}

// Cuts is how many connections were broken.
func (p *Plain) Cuts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

// Close breaks every connection and waits until nothing of the proxy runs.
func (p *Plain) Close() error {
	p.end()
	err := p.listener.Close()
	p.Cut()
	p.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (p *Plain) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.running.Go(func() { p.serve(client) })
	}
}

func (p *Plain) serve(client net.Conn) {
	defer client.Close()
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	server, err := p.dialer.DialContext(p.ended, "tcp", target)
	if err != nil {
		return // the client sees a connection that closes at once
	}
	defer server.Close()
	if !p.track(client, server) {
		return
	}
	defer p.forget(client, server)
	asked := make(chan struct{}, 1) // holds a token when the client has sent something since an answer was to be lost
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		p.forward(client, server, func(chunk []byte) (int, bool) {
			select {
			case <-asked:
				return 0, true
			default:
				return len(chunk), false
			}
		})
	}()
	p.forward(server, client, func(chunk []byte) (int, bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case p.torn > 0 && len(chunk) > 1:
			p.torn--
			p.cuts++
			return len(chunk) / 2, true
		case p.lose > 0:
			p.lose--
			p.cuts++
			select {
			case asked <- struct{}{}:
			default:
			}
		}
		return len(chunk), false
	})
	<-answered
}

// forward copies from one connection to the other until either breaks or judge says that it is to break, after so many
// bytes of the chunk.
func (p *Plain) forward(to, from net.Conn, judge func(chunk []byte) (pass int, stop bool)) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			pass, stop := judge(buffer[:n])
			if _, err := to.Write(buffer[:pass]); err != nil || stop {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *Plain) track(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away || p.ended.Err() != nil {
		return false
	}
	for _, c := range conns {
		p.open[c] = struct{}{}
	}
	return true
}

func (p *Plain) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.open, c)
	}
}
