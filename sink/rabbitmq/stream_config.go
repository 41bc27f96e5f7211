package rabbitmq

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/access/certs"
	"github.com/cdc-relay/cdc-relay/internal/access/secret"
	"github.com/cdc-relay/cdc-relay/internal/plain"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/rabbitmq/internal/wire"
)

// The schemes of [StreamConfig].URL, with their streamPorts.
const (
	streamScheme    = "rabbitmq-stream"
	streamSchemeTLS = "rabbitmq-stream+tls"
)

var streamPorts = map[string]string{streamScheme: "5552", streamSchemeTLS: "5551"}

// StreamConfig says where the server is. Files are read again at each connect.
type StreamConfig struct {
	URL          string // rabbitmq-stream://user@host:port/vhost, rabbitmq-stream+tls:// for TLS
	PasswordFile string
	Name         string // of the connections, in the server's lists, and part of the publisher's name
	ContentType  string
	IDHeader     string // the header that becomes message-id
	TypeHeader   string // the header that becomes subject
	// Streams is a regular expression of the streams that are written to, for the rabbitmqctl commands in errors: a grant
	// replaces the former one. "": the stream at hand.
	Streams        string
	MissingStreams MissingStreams
	TLS            certs.Files
	DialTimeout    time.Duration // 0: 3 s
	// RequestTimeout bounds how long the server may take for one answer, or one batch. 0: 10 s.
	RequestTimeout time.Duration
	Hooks          StreamHooks
}

// MissingStreams reports whether and how missing streams are created.
type MissingStreams struct {
	Create   bool
	MaxBytes int64         // the server deletes the oldest segments of a longer stream; 0: never
	MaxAge   time.Duration // and segments that are older; 0: never
}

// StreamHooks observe. They must be quick; any may be nil.
type StreamHooks struct {
	StreamCreated func(stream string)
	Alarm         func(sink.Alarm)
}

func (n MissingStreams) arguments() map[string]string {
	arguments := map[string]string{}
	if n.MaxBytes > 0 {
		arguments["max-length-bytes"] = strconv.FormatInt(n.MaxBytes, 10)
	}
	if n.MaxAge > 0 {
		arguments["max-age"] = strconv.FormatInt(int64(n.MaxAge/time.Second), 10) + "s"
	}
	return arguments
}

func parseStream(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || streamPorts[u.Scheme] == "" || u.Hostname() == "" {
		return nil, wire.ConfigurationError{Err: errors.New("the URL of RabbitMQ's streams is not " +
			streamScheme + "://user@host:port/vhost")}
	}
	return u, nil
}

// options reads the URL, and the files.
func (c StreamConfig) options() (*wire.Options, error) {
	u, err := parseStream(c.URL)
	if err != nil {
		return nil, err
	}
	o := &wire.Options{
		VirtualHost: strings.TrimPrefix(u.Path, "/"), User: u.User.Username(), Name: c.Name,
		DialTimeout: c.DialTimeout, RequestTimeout: c.RequestTimeout,
	}
	o.Password, _ = u.User.Password()
	if o.VirtualHost == "" {
		o.VirtualHost = "/"
	}
	if o.User == "" {
		o.User = "guest"
	}
	port := u.Port()
	if port == "" {
		port = streamPorts[u.Scheme]
	}
	o.Address = net.JoinHostPort(u.Hostname(), port)
	if c.PasswordFile != "" {
		o.Password, err = secret.ReadFile(c.PasswordFile)
		if err != nil {
			return nil, wire.ConfigurationError{Err: fmt.Errorf("read the password of RabbitMQ: %w", err)}
		}
	}
	if u.Scheme == streamSchemeTLS {
		o.TLS = &c.TLS
	}
	return o, nil
}

// explained names the command that helps.
func (c StreamConfig) explained(err error, stream string) error {
	o, problem := c.options()
	switch {
	case problem != nil:
	case errors.Is(err, wire.NoStream):
		return fmt.Errorf("%w; declare it: rabbitmqadmin --vhost=%s declare queue name=%s queue_type=stream durable=true; "+
			"or set rabbitmq_stream.create_streams.enabled", err, plain.Word(o.VirtualHost), plain.Word(stream))
	case errors.Is(err, wire.AccessRefused):
		own, create := plain.Word(cmp.Or(c.Streams, "^"+regexp.QuoteMeta(stream)+"$")), "''"
		if c.MissingStreams.Create {
			create = own
		}
		return fmt.Errorf("%w; the user needs: rabbitmqctl set_permissions --vhost %s %s %s %s %s", err,
			plain.Word(o.VirtualHost), plain.Word(o.User), create, own, own)
	}
	return err
}
