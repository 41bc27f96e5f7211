package kafka

import (
	"context"
	"net"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

const (
	// idleTimeout closes a connection that was not used; brokers do it after ten minutes (connections.max.idle.ms).
	idleTimeout = 4 * time.Minute

	// transportTTL is how often, at most, the Transport asks each broker for the list of brokers. Its answer is not used;
	// it is also the Transport's patience with that request.
	transportTTL = 30 * time.Second
)

// endpoint is one broker address with its own Transport, so that what happens to one broker's connections touches no
// other. Requests at the same time have a connection each.
type endpoint struct {
	address string
	dialer  *dialer

	mu             sync.Mutex
	transport      *kafkago.Transport // nil: made at the next request
	throttledUntil time.Time
}

// roundTrip sends a request and returns its answer. After an error the endpoint begins anew with fresh connections: the
// idle ones are usually dead as well.
func (e *endpoint) roundTrip(ctx context.Context, request protocol.Message) (protocol.Message, error) {
	e.mu.Lock()
	t := e.transport
	if t == nil {
		t = e.dialer.transport()
		e.transport = t
	}
	e.mu.Unlock()

	answer, err := t.RoundTrip(ctx, kafkago.TCP(e.address), request)
	if err != nil {
		e.mu.Lock()
		if e.transport == t {
			e.transport = nil
		}
		e.mu.Unlock()
		t.CloseIdleConnections()
		return nil, err
	}
	if r, wrapped := answer.(received); wrapped {
		answer = r.Message
	}
	return answer, nil
}

// close gives up the endpoint's idle connections.
func (e *endpoint) close() {
	e.mu.Lock()
	t := e.transport
	e.transport = nil
	e.mu.Unlock()
	if t != nil {
		t.CloseIdleConnections()
	}
}

// throttle notes that the broker asked us to wait (KIP-219: it answers first and expects the client to wait).
func (e *endpoint) throttle(ms int32) {
	if ms <= 0 {
		return
	}
	e.mu.Lock()
	e.throttledUntil = time.Now().Add(time.Duration(ms) * time.Millisecond)
	e.mu.Unlock()
}

// waitThrottled waits until the broker wants to hear of us again.
func (e *endpoint) waitThrottled(ctx context.Context) error {
	e.mu.Lock()
	until := e.throttledUntil
	e.mu.Unlock()
	if until.IsZero() {
		return nil
	}
	if left := time.Until(until); left > 0 {
		return pause(ctx, left)
	}
	return nil
}

// dialer opens the connections of all endpoints and can close them all: a Transport keeps a connection whose request
// was given up until that request's deadline.
type dialer struct {
	ctx    context.Context // of the driver
	config Config

	mu    sync.Mutex
	open  map[*conn]struct{}
	ended bool
}

func (d *dialer) transport() *kafkago.Transport {
	return &kafkago.Transport{
		Dial:           d.dial,
		DialTimeout:    d.config.DialTimeout,
		IdleTimeout:    idleTimeout,
		MetadataTTL:    transportTTL,
		MetadataTopics: []string{}, // none; nil would be all topics of the cluster
		ClientID:       d.config.ClientID,
		TLS:            d.config.TLS,
		SASL:           d.config.SASL,
		Context:        d.ctx,
	}
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	inner, err := d.config.Dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, dialer: d}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		inner.Close()
		return nil, net.ErrClosed
	}
	d.open[c] = struct{}{}
	return c, nil
}

func (d *dialer) close() {
	d.mu.Lock()
	d.ended = true
	open := d.open
	d.open = nil
	d.mu.Unlock()
	for c := range open {
		c.Conn.Close()
	}
}

// conn is a connection that the dialer knows as long as it is open.
type conn struct {
	net.Conn
	dialer *dialer
}

// Close is net.Conn.
func (c *conn) Close() error {
	c.dialer.mu.Lock()
	delete(c.dialer.open, c)
	c.dialer.mu.Unlock()
	return c.Conn.Close()
}
