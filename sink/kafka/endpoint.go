package kafka

import (
	"context"
	"errors"
	"fmt"
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
	pace    pace // of Produce requests

	mu        sync.Mutex
	transport *kafkago.Transport // nil: made at the next request
}

// roundTrip sends a request and returns its answer. After an error the endpoint begins anew with fresh connections: the
// idle ones are usually dead as well. They are not when only the patience with the request was over.
func (e *endpoint) roundTrip(ctx context.Context, request protocol.Message) (protocol.Message, error) {
	e.mu.Lock()
	t := e.transport
	if t == nil {
		t = e.dialer.transport()
		e.transport = t
	}
	e.mu.Unlock()

	answer, err := t.RoundTrip(ctx, kafkago.TCP(e.address), request)
	if errors.Is(err, errImpatient) {
		return nil, err
	}
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

// dialer opens the connections of all endpoints and can close them all: a Transport keeps a connection whose request
// was given up until that request's deadline.
type dialer struct {
	ctx    context.Context // of the driver
	config Config

	mu       sync.Mutex
	open     map[*conn]struct{}
	ended    bool
	refusals map[string]*refusal // by address
}

func (d *dialer) transport() *kafkago.Transport {
	return &kafkago.Transport{
		Dial:           d.dial,
		DialTimeout:    d.config.DialTimeout,
		IdleTimeout:    idleTimeout,
		MetadataTTL:    transportTTL,
		MetadataTopics: []string{}, // none; nil would be all topics of the cluster
		ClientID:       d.config.ClientID,
		Context:        d.ctx,
	}
}

// Connector opens connections as a driver of this configuration does, secured and logged in: for other clients of the
// same cluster, which need neither TLS nor SASL of their own then. Whoever gets a connection closes it.
func Connector(c Config) (func(ctx context.Context, network, address string) (net.Conn, error), error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configure the connections to Kafka: %w", err)
	}
	d := &dialer{ctx: context.Background(), config: c, open: make(map[*conn]struct{})}
	return d.dial, nil
}

// dial opens a connection, secured and logged in.
func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if err := d.refusedLately(address); err != nil {
		return nil, err
	}
	inner, err := d.config.Dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, raw: inner, address: address, dialer: d}
	if !d.register(c) {
		inner.Close()
		return nil, net.ErrClosed
	}
	if err := d.logIn(ctx, c); err != nil {
		c.Close()
		d.noteRefusal(address, err)
		return nil, err
	}
	return c, nil
}

// register makes the connection one that close closes. After close it says false.
func (d *dialer) register(c *conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return false
	}
	d.open[c] = struct{}{}
	return true
}

func (d *dialer) close() {
	d.mu.Lock()
	d.ended = true
	open := d.open
	d.open = nil
	d.mu.Unlock()
	for c := range open {
		c.raw.Close()
	}
}

// conn is a connection that the dialer knows as long as it is open.
type conn struct {
	net.Conn // with TLS, if there is any; changes before the connection is given out
	raw      net.Conn
	address  string
	dialer   *dialer
	answered bool // something was read
}

// Read is net.Conn. A broker that does not like our certificate says so only here, in answer to the first request
// (TLS 1.3).
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if !c.answered && n > 1 {
		c.answered = true
		if c.dialer.config.TLS == nil && p[0] == tlsAlert && p[1] == tlsMajor {
			err = &LoginError{"the broker speaks TLS on this port", keyTLS, nil}
			c.dialer.noteRefusal(c.address, err)
			return 0, err
		}
	}
	var remote *net.OpError
	if err != nil && c.dialer.config.TLS != nil && errors.As(err, &remote) && remote.Op == "remote error" {
		err = c.dialer.config.TLS.explain(err)
		c.dialer.noteRefusal(c.address, err)
	}
	return n, err
}

// What a TLS record of the kind alert begins with. As the first bytes of a Kafka answer it would be a length of 352 MB.
const tlsAlert, tlsMajor = 21, 3

// Close is net.Conn.
func (c *conn) Close() error {
	c.dialer.mu.Lock()
	delete(c.dialer.open, c)
	c.dialer.mu.Unlock()
	return c.Conn.Close()
}
