package rabbitmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/access/certs"
	"github.com/cdc-relay/cdc-relay/internal/access/secret"
	"github.com/cdc-relay/cdc-relay/internal/plain"
	"github.com/cdc-relay/cdc-relay/sink"
)

// closePatience bounds how long the server may take to answer that a connection is to be closed.
const closePatience = time.Second

// connection is one connection to the server, which can always be closed in time.
type connection struct {
	*amqp.Connection
	socket net.Conn
	ending atomic.Bool
	ended  chan struct{} // closed when the connection is
}

// end closes the connection within closePatience and some. Concurrent calls return when it is closed: the client's own
// Close returns at once if another one has begun. The client's deadline alone is not a bound: a server with an
// alarm of memory or disk reads nothing and sends heartbeats, and each of them moves the deadline.
func (c *connection) end() {
	if c.ending.Swap(true) {
		<-c.ended // and not a sync.Once: synctest's clock stands while a goroutine waits for a mutex
		return
	}
	defer close(c.ended)
	cut := time.AfterFunc(closePatience, func() { _ = c.socket.Close() })
	defer cut.Stop()
	_ = c.CloseDeadline(time.Now().Add(closePatience))
}

// endWith closes the connection when ctx ends. release takes that back, or waits for a close that has begun.
func (c *connection) endWith(ctx context.Context) (release func()) {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		c.end()
	})
	return func() {
		if !stop() {
			<-ended
		}
	}
}

// dial connects once.
func (c Config) dial() (*connection, error) {
	uri, err := amqp.ParseURI(c.URL)
	if err != nil {
		return nil, &trouble{sink.ConfigurationTrouble, fmt.Errorf("read the URL of RabbitMQ: %w", err)}
	}
	if c.PasswordFile != "" {
		password, err := secret.ReadFile(c.PasswordFile)
		if err != nil {
			return nil, &trouble{sink.ConfigurationTrouble, fmt.Errorf("read the password of RabbitMQ: %w", err)}
		}
		uri.Password = password
	}
	opened := opener{config: c, host: uri.Host, files: c.TLS.Or(uri.CACertFile, uri.CertFile, uri.KeyFile)}
	opened.files.ServerName = uri.ServerName
	config := amqp.Config{
		Heartbeat: c.RequestTimeout, Locale: "en_US", Properties: amqp.Table{"connection_name": c.Name},
		Dial: opened.keep(guarded(opened.plain)),
	}
	if uri.Scheme == schemeTLS { // the client would not say what the server said by TLS
		uri.Scheme, config.Dial = scheme, opened.keep(guarded(opened.secured))
	}
	if slices.ContainsFunc(uri.AuthMechanism, func(m string) bool { return strings.EqualFold(m, "external") }) {
		config.SASL = []amqp.Authentication{&amqp.ExternalAuth{}}
	}
	conn, err := amqp.DialConfig(uri.String(), config)
	if err == nil {
		return &connection{Connection: conn, socket: opened.socket, ended: make(chan struct{})}, nil
	}
	return nil, opened.blame(err)
}

// The schemes of [Config].URL.
const (
	scheme    = "amqp"
	schemeTLS = "amqps"
)

// opener opens one connection, and knows what became of its TLS.
type opener struct {
	config Config
	host   string
	files  certs.Files
	conn   *certs.Conn
	socket net.Conn // as the client has it
}

// keep remembers the socket that dial opens.
func (o *opener) keep(dial func(network, address string) (net.Conn, error)) func(string, string) (net.Conn, error) {
	return func(network, address string) (net.Conn, error) {
		conn, err := dial(network, address)
		o.socket = conn
		return conn, err
	}
}

// plain connects, with a deadline for the handshake, which the client lifts.
func (o *opener) plain(network, address string) (net.Conn, error) {
	conn, err := o.config.Dial(network, address, o.config.DialTimeout)
	if err == nil {
		err = conn.SetDeadline(time.Now().Add(o.config.DialTimeout))
	}
	return conn, err
}

func (o *opener) secured(network, address string) (net.Conn, error) {
	inner, err := o.plain(network, address)
	if err != nil {
		return nil, err
	}
	o.conn, err = o.files.Secure(context.Background(), inner, o.host) // within the deadline
	if err != nil {
		return nil, err // and no interface around a nil
	}
	return o.conn, nil
}

// blame says whose trouble it is that no connection came about.
func (o *opener) blame(err error) error {
	if o.conn != nil {
		err = cmp.Or(o.conn.Refused(), err)
	}
	kind := sink.ClusterTrouble
	said, answered := errors.AsType[*amqp.Error](err)
	switch {
	case certs.IsError(err):
		kind = sink.ConfigurationTrouble
	case answered && said.Code == amqp.AccessRefused:
		kind = sink.ConfigurationTrouble
		err = fmt.Errorf("%w; correct user and password: rabbitmq.url and rabbitmq.password_file, or: rabbitmqctl "+
			"change_password %s PASSWORD", err, plain.Word(o.config.uri().Username))
	case answered && said.Code == amqp.NotAllowed:
		kind = sink.ConfigurationTrouble
		err = fmt.Errorf("%w; correct the virtual host in rabbitmq.url, or let the user in: %s",
			err, o.config.grant(".*"))
	}
	return &trouble{kind, fmt.Errorf("connect to RabbitMQ: %w", err)}
}

func (c Config) uri() amqp.URI {
	uri, _ := amqp.ParseURI(c.URL) // New has looked at it
	return uri
}

// grant is the command that lets the user write to its exchanges: all of them, since it replaces what the user had.
func (c Config) grant(exchange string) string {
	uri := c.uri()
	return fmt.Sprintf("rabbitmqctl set_permissions --vhost %s %s '' %s ''", plain.Word(uri.Vhost),
		plain.Word(uri.Username), plain.Word(cmp.Or(c.Exchanges, exchange)))
}

// trouble is an error that says whose it is.
type trouble struct {
	kind sink.Trouble
	err  error
}

func (t *trouble) Error() string         { return t.err.Error() }
func (t *trouble) Unwrap() error         { return t.err }
func (t *trouble) Trouble() sink.Trouble { return t.kind }

// Gone implements [sink.Gone]: the exchange does not exist, or we may not write to it. RabbitMQ does not deduplicate.
func (t *trouble) Gone() bool {
	var said *amqp.Error
	return t.kind == sink.TopicTrouble && errors.As(t.err, &said) && said.Server &&
		(said.Code == amqp.NotFound || said.Code == amqp.AccessRefused)
}
