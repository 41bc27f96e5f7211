// Package cutproxy is a TCP proxy for Kafka connections that tests use to break them at chosen places: inside a
// request, after it was delivered but before its answer, inside the answer; and to withhold answers or deliver requests
// long after their client has gone. It understands frames (length, api key), nothing of their content: it does not
// rewrite the addresses that brokers advertise, so clients must dial through [Proxy.Dial], or brokers must advertise
// what [Proxy.Listen] returned.
package cutproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Kind is the fate of a request.
type Kind uint8

// The kinds.
const (
	Pass          Kind = iota
	InRequest          // half of the request reaches the broker, then the connection breaks
	AfterDelivery      // the broker has the request and has answered; the connection breaks before the answer
	InAnswer           // half of the answer reaches the client, then the connection breaks
	Withhold           // the broker answers; the client never hears of it on a connection that stays open
	Late               // the client's connection breaks; the broker gets the request after Action.Delay
	kinds
)

// String names the kind.
func (k Kind) String() string {
	names := [kinds]string{"pass", "in the request", "after delivery", "in the answer", "answer withheld",
		"delivered late"}
	if k >= kinds {
		return fmt.Sprintf("Kind(%d)", k)
	}
	return names[k]
}

// Action is the policy's decision about a request.
type Action struct {
	Kind  Kind
	Delay time.Duration // of Late
}

// Request describes a request to the policy.
type Request struct {
	Target  string // the broker's address
	APIKey  int16  // 0 is Produce
	Version int16
	Length  int // in bytes, without its length field
}

// Policy decides on each request. It is called from many goroutines, one call at a time. It sees no request whose
// answer never comes (Produce with acks=0): the proxy expects one answer for each request.
type Policy func(Request) Action

// largestFrame is the largest request or answer that is taken for one, in bytes.
const largestFrame = 1 << 30

// Proxy forwards connections under a policy.
type Proxy struct {
	policy Policy
	dialer net.Dialer
	counts [kinds]atomic.Int64

	mu        sync.Mutex // guards what follows, and calls of policy
	listeners map[string]net.Listener
	open      map[net.Conn]struct{}
	closed    bool

	running sync.WaitGroup
	ended   context.Context
	end     context.CancelFunc
}

// New makes a proxy. Close it at the end.
func New(policy Policy) *Proxy {
	ended, end := context.WithCancel(context.Background())
	return &Proxy{
		policy: policy, ended: ended, end: end,
		listeners: make(map[string]net.Listener), open: make(map[net.Conn]struct{}),
	}
}

var errClosed = errors.New("the proxy is closed")

// Listen opens a port on the loopback interface, the same one at each call, that leads to the target.
func (p *Proxy) Listen(target string) (address string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return "", errClosed
	}
	l := p.listeners[target]
	if l == nil {
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return "", fmt.Errorf("listen for %s: %w", target, err)
		}
		p.listeners[target] = l
		p.running.Go(func() { p.accept(l, target) })
	}
	return l.Addr().String(), nil
}

// Dial connects to the address by way of the proxy. It has the form that clients take for their dial function.
func (p *Proxy) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	through, err := p.Listen(address)
	if err != nil {
		return nil, err
	}
	return p.dialer.DialContext(ctx, network, through)
}

// Count is how many requests met the kind so far.
func (p *Proxy) Count(k Kind) int { return int(p.counts[k].Load()) }

// Cuts is how many requests met any kind but Pass.
func (p *Proxy) Cuts() int {
	n := 0
	for k := Pass + 1; k < kinds; k++ {
		n += p.Count(k)
	}
	return n
}

// Close breaks every connection and waits until nothing of the proxy runs. Late requests not yet delivered are dropped.
func (p *Proxy) Close() error {
	p.end()
	p.mu.Lock()
	p.closed = true
	var errs []error
	for _, l := range p.listeners {
		errs = append(errs, l.Close())
	}
	for c := range p.open {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
	return errors.Join(errs...)
}

func (p *Proxy) accept(l net.Listener, target string) {
	for {
		client, err := l.Accept()
		if err != nil {
			return // closed
		}
		if !p.track(client) {
			return
		}
		p.running.Go(func() { p.serve(client, target) })
	}
}

// track notes an open connection, or closes it when the proxy is closed.
func (p *Proxy) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return false
	}
	p.open[c] = struct{}{}
	return true
}

func (p *Proxy) drop(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	delete(p.open, c)
	p.mu.Unlock()
}

func (p *Proxy) decide(r Request) Action {
	p.mu.Lock()
	a := p.policy(r)
	p.mu.Unlock()
	p.counts[a.Kind].Add(1)
	return a
}
