package nats

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	client "github.com/nats-io/nats.go"

	"github.com/cdc-relay/cdc-relay/internal/access/certs"
	"github.com/cdc-relay/cdc-relay/internal/access/secret"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Defaults of [Config].
const (
	defaultDialTimeout    = 3 * time.Second
	defaultRequestTimeout = 10 * time.Second
)

// Config says where the servers are and how to log in. Files are read again at each connect.
type Config struct {
	URL  string // nats://host:port, tls:// or ws://; several with commas
	Name string // of the connection, in the server's lists
	// Stream is the stream of all topics; empty: the one whose subjects have the topic.
	Stream string

	CredentialsFile        string // JWT and nkey seed, as nsc writes it
	NKeyFile               string // the seed of an nkey
	Username, PasswordFile string
	TokenFile              string
	TLS                    certs.Files // any of them makes TLS a must, whatever the URL says

	NewStreams NewStreams

	DialTimeout    time.Duration // 0: 3 s
	RequestTimeout time.Duration // how long the servers may take for one batch; 0: 10 s

	Hooks Hooks
}

// NewStreams reports whether and how a stream is made for a topic that none takes.
type NewStreams struct {
	Create   bool
	Replicas int // 0 = 1
}

// Hooks observe. They must be quick; any may be nil.
type Hooks struct {
	StreamCreated func(stream, subject string)
	OneByOne      func(stream string, replicas int) // it takes no batches, once for each stream
	Alarm         func(sink.Alarm)
}

func (c Config) withDefaults() Config {
	if c.DialTimeout <= 0 {
		c.DialTimeout = defaultDialTimeout
	}
	if c.RequestTimeout <= 0 {
		c.RequestTimeout = defaultRequestTimeout
	}
	if c.Name == "" {
		c.Name = "cdc-relay"
	}
	if c.NewStreams.Replicas <= 0 {
		c.NewStreams.Replicas = 1
	}
	return c
}

// options are those of one connect. The client never reconnects by itself: it would keep messages that it
// reported as failed, and send them later.
func (c Config) options() ([]client.Option, error) {
	options := []client.Option{
		client.Name(c.Name), client.Timeout(c.DialTimeout), client.NoReconnect(), client.FlusherTimeout(c.RequestTimeout),
		client.PingInterval(c.RequestTimeout), client.MaxPingsOutstanding(1),
	}
	// The frames of WebSockets are not the protocol's lines.
	if !strings.Contains(c.URL, "ws://") && !strings.Contains(c.URL, "wss://") {
		options = append(options, client.SetCustomDialer(guards{net.Dialer{Timeout: c.DialTimeout}}))
	}
	if c.CredentialsFile != "" {
		if _, err := os.ReadFile(c.CredentialsFile); err != nil {
			return nil, &loginError{fmt.Errorf("read nats.credentials_file: %w", err)}
		}
		options = append(options, client.UserCredentials(c.CredentialsFile))
	}
	if c.NKeyFile != "" {
		nkey, err := client.NkeyOptionFromSeed(c.NKeyFile)
		if err != nil {
			return nil, &loginError{fmt.Errorf("read the seed in nats.nkey_file, %s: %w", c.NKeyFile, err)}
		}
		options = append(options, nkey)
	}
	if c.Username != "" || c.PasswordFile != "" {
		password, err := secretIn(c.PasswordFile)
		if err != nil {
			return nil, err
		}
		options = append(options, client.UserInfo(c.Username, password))
	}
	if c.TokenFile != "" {
		token, err := secretIn(c.TokenFile)
		if err != nil {
			return nil, err
		}
		options = append(options, client.Token(token))
	}
	if c.TLS.Any() || strings.Contains(c.URL, "tls://") || strings.Contains(c.URL, "wss://") {
		secured, err := c.TLS.Config("") // the client fills in the host
		if err != nil {
			return nil, &loginError{err}
		}
		options = append(options, client.Secure(secured))
	}
	return options, nil
}

// login is the keys that the login is made of.
func (c Config) login() string {
	switch {
	case c.CredentialsFile != "":
		return "nats.credentials_file"
	case c.NKeyFile != "":
		return "nats.nkey_file"
	case c.TokenFile != "":
		return "nats.token_file"
	case c.Username != "":
		return "nats.username and nats.password_file"
	}
	return "the login in nats.url, or name its file: nats.password_file, token_file, nkey_file or credentials_file"
}

// secretIn returns the content of the file, nothing without a file.
func secretIn(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := secret.ReadFile(path)
	if err != nil {
		return "", &loginError{fmt.Errorf("read a secret: %w", err)}
	}
	return text, nil
}

// loginError is one that a person must do something about.
type loginError struct{ err error }

func (e *loginError) Error() string         { return e.err.Error() }
func (e *loginError) Unwrap() error         { return e.err }
func (e *loginError) Trouble() sink.Trouble { return sink.ConfigurationTrouble }

// connect dials once.
func (c Config) connect(denied func(error), closed func()) (*client.Conn, error) {
	options, err := c.options()
	if err != nil {
		return nil, err
	}
	options = append(options,
		client.ErrorHandler(func(_ *client.Conn, _ *client.Subscription, err error) {
			if errors.Is(err, client.ErrPermissionViolation) {
				denied(err)
			}
		}),
		client.ClosedHandler(func(*client.Conn) { closed() }))
	nc, err := client.Connect(c.URL, options...)
	if err == nil {
		return nc, nil
	}
	switch {
	case errors.Is(err, client.ErrSecureConnWanted):
		err = &certs.Error{What: "the server does not offer TLS", Check: "nats.url and the tls block of the server", Err: err}
	case strings.Contains(err.Error(), "after TLS handshake"): // the client's own text: it has no value for it
		err = c.TLS.Dropped(err)
	case errors.Is(err, client.ErrTLS), certs.IsAlert(err):
		err = c.TLS.Explain(err)
	}
	err = fmt.Errorf("connect to NATS: %w", err)
	if certs.IsError(err) {
		return nil, &loginError{err}
	}
	for _, login := range []error{
		client.ErrAuthorization, client.ErrAuthExpired, client.ErrAuthRevoked, client.ErrAccountAuthExpired,
		client.ErrSecureConnRequired, client.ErrNkeysNotSupported,
	} {
		if errors.Is(err, login) {
			return nil, &loginError{fmt.Errorf("%w; correct %s", err, c.login())}
		}
	}
	return nil, err
}
