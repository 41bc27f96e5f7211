// Package connect is the way to a broker: connections that are secured and logged in, closed together, and one request
// with its answer over one of them. It does not choose requests or brokers, or interpret answers.
//
// endpoint.go are the connections, session.go how long one is used, login.go, bearer.go and security.go how they prove
// themselves; exchange.go a Produce request on the wire, wire.go the shapes of the others. Logins are tested on a real
// broker in sink/kafka (security_test.go, bearer_test.go), lost and frozen connections there, too (faults_test.go).
package connect

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
	// idleTimeout closes a connection that was not used. Brokers do it after ten minutes (connections.max.idle.ms), Azure
	// after four.
	idleTimeout = 3 * time.Minute

	// transportTTL is how often, at most, the Transport asks each broker for the list of brokers. Its answer is not used;
	// it is also the Transport's patience with that request.
	transportTTL = 30 * time.Second
)

// Config says how connections are opened, secured and logged in.
type Config struct {
	ClientID    string
	DialTimeout time.Duration // bounds a connection's set-up
	Dial        func(ctx context.Context, network, address string) (net.Conn, error)
	TLS         *TLS  // nil: none
	SASL        *SASL // nil: none
}

// Endpoint is one broker address with its own Transport, so that what happens to one broker's connections touches no
// other. Requests at the same time have a connection each.
type Endpoint struct {
	Address string // host:port
	lines   *Lines
}

// RoundTrip sends a request and returns its answer. After an error the endpoint begins again with fresh connections:
// the idle ones are usually dead as well. They are not when only the patience with the request was over.
func (e *Endpoint) RoundTrip(ctx context.Context, request protocol.Message) (protocol.Message, error) {
	l := e.lines.take()
	answer, err := func() (_ kafkago.Response, err error) {
		defer recovered(&err)
		return l.transport.RoundTrip(ctx, kafkago.TCP(e.Address), request)
	}()
	e.lines.leave(l, err != nil && !errors.Is(err, ErrImpatient))
	if err != nil {
		return nil, err
	}
	if r, wrapped := answer.(received); wrapped {
		answer = r.Message
	}
	return answer, nil
}

// Close gives up the endpoint's idle connections.
func (e *Endpoint) Close() { e.lines.CloseIdleConnections() }

// Dialer opens the connections of all endpoints and can close them all: a Transport keeps a connection whose request
// was given up until that request's deadline.
type Dialer struct {
	ctx    context.Context // of its owner
	config Config

	mu       sync.Mutex
	open     map[*conn]struct{}
	ended    bool
	refusals map[string]*refusal // by address
}

// NewDialer makes a dialer whose connections last no longer than ctx.
func NewDialer(ctx context.Context, c Config) *Dialer {
	return &Dialer{ctx: ctx, config: c, open: make(map[*conn]struct{})}
}

// Endpoint is the connections to an address, none at first.
func (d *Dialer) Endpoint(address string) *Endpoint {
	return &Endpoint{Address: address, lines: d.Lines(d.Transport)}
}

// Transport is kafka-go's, as the driver wants it, for [Dialer.Lines], which give it its connections.
func (d *Dialer) Transport() *kafkago.Transport {
	return &kafkago.Transport{
		DialTimeout:    d.config.DialTimeout,
		IdleTimeout:    idleTimeout,
		MetadataTTL:    transportTTL,
		MetadataTopics: []string{}, // none; nil would be all topics of the cluster
		ClientID:       d.config.ClientID,
		Context:        d.ctx,
	}
}

// Dial opens a connection, secured and logged in.
func (d *Dialer) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.dial(ctx, network, address)
	if err != nil {
		return nil, err // and no interface around a nil
	}
	return c, nil
}

func (d *Dialer) dial(ctx context.Context, network, address string) (*conn, error) {
	if err := d.refusedLately(address); err != nil {
		return nil, err
	}
	password := ""
	if d.config.SASL != nil { // before the broker waits for us: a program takes its time
		var err error
		if password, err = d.config.SASL.password(ctx); err != nil {
			d.noteRefusal(address, err)
			return nil, fmt.Errorf("log in: %w", err)
		}
	}
	inner, err := d.config.Dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, raw: inner, address: address, dialer: d, password: password}
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

// register makes the connection one that Close closes. After Close it reports false.
func (d *Dialer) register(c *conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return false
	}
	d.open[c] = struct{}{}
	return true
}

// Close closes all connections, and lets none be opened.
func (d *Dialer) Close() {
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
	dialer   *Dialer
	password string // of SASL
	answered bool   // something was read
	guard    guard  // of answers; one goroutine at a time uses the connection
	// when the session of its login is to be renewed, by another connection; zero: it lasts
	renewal time.Time
}

// Read is net.Conn: answers that the guard has looked at.
func (c *conn) Read(p []byte) (int, error) { return c.guard.read(unguarded{c}, p) }

// Write is net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	c.guard.wrote(p)
	return c.Conn.Write(p)
}

// unguarded reads what the broker sends. It is here that a broker says that it does not like our certificate (TLS 1.3),
// or wants TLS.
type unguarded struct{ *conn }

// Read is io.Reader.
func (u unguarded) Read(p []byte) (int, error) {
	c := u.conn
	n, err := c.Conn.Read(p)
	if !c.answered && n > 1 {
		c.answered = true
		if c.dialer.config.TLS == nil && p[0] == tlsAlert && p[1] == tlsMajor {
			err = &LoginError{What: "the broker speaks TLS on this port", Check: keyTLS}
			c.dialer.noteRefusal(c.address, err)
			return 0, err
		}
	}
	if err != nil && IsLoginError(err) {
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
