// Package certs secures connections by certificates in files. It reads the files at each connect, so that renewed ones
// are used without a restart, and says why the two sides do not come together and what to look at. It knows no protocol
// above TLS.
//
// Tested here on TLS servers, and on those of HTTP in sink/webhook and registry; on real brokers in test/logins.
package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// Files are the PEM files of one section of the configuration. The zero value trusts the system's authorities.
type Files struct {
	CAFile            string // the authorities to trust; empty: the system's
	CertFile, KeyFile string // the client certificate and its key; both or none
	ServerName        string // that the server's certificate must have; empty: the host's
	Names             Names
}

// Any reports whether a file is named.
func (f Files) Any() bool { return f.CAFile != "" || f.CertFile != "" || f.KeyFile != "" }

// Or is f, or the same section with these files if it names none.
func (f Files) Or(ca, cert, key string) Files {
	if !f.Any() {
		f.CAFile, f.CertFile, f.KeyFile = ca, cert, key
	}
	return f
}

// Names are the words for things in errors.
type Names struct {
	Server  string // the other side, such as broker
	Section string // of the files' keys, such as nats.tls
	Host    string // where the name comes from that the certificate must have
	Port    string // the setting that turns TLS on at this port
}

// ByURL are the names of a section beside a URL whose scheme turns TLS on.
func ByURL(server, section, url string) Names {
	return Names{server, section, "the host in " + url, "the scheme and the port in " + url}
}

func (n Names) ca() string   { return n.Section + ".ca_file" }
func (n Names) cert() string { return n.Section + ".cert_file and " + n.Section + ".key_file" }

// Error says why a server and we do not come together although it can be reached. Waiting heals none of it: a person
// must act.
type Error struct {
	What  string // what happened
	Check string // what to look at: configuration keys, or something at the server
	Err   error  // the cause, nil when What says it all
	// Ours: our own files are at fault, which are those of every server. Else it is about this server and us.
	Ours bool
}

// Error says what happened, why, and what to look at.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.What + "; check " + e.Check
	}
	return fmt.Sprintf("%s: %v; check %s", e.What, e.Err, e.Check)
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// IsError reports whether err is, or wraps, an [Error].
func IsError(err error) bool {
	_, is := errors.AsType[*Error](err)
	return is
}

// IsOurs reports whether err is, or wraps, an [Error] about our own files.
func IsOurs(err error) bool {
	e, is := errors.AsType[*Error](err)
	return is && e.Ours
}

// Config reads the files for a connection to the host. Without a host the caller fills it in.
func (f Files) Config(host string) (*tls.Config, error) {
	c := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if f.ServerName != "" {
		c.ServerName = f.ServerName
	}
	if f.CAFile != "" {
		pem, err := os.ReadFile(f.CAFile)
		if err != nil {
			return nil, &Error{"the CA file cannot be read", f.Names.ca(), err, true}
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, &Error{f.CAFile + " holds no certificate in PEM form", f.Names.ca(), nil, true}
		}
	}
	if f.CertFile != "" {
		pair, err := f.pair()
		if err != nil {
			return nil, &Error{"the client certificate cannot be used", f.Names.cert(), err, true}
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// pair reads the client certificate. An error names the files: those of the standard library often do not.
func (f Files) pair() (tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f.CertFile, f.KeyFile)
	if err != nil {
		return pair, fmt.Errorf("%s with %s: %w", f.CertFile, f.KeyFile, err)
	}
	return pair, nil
}

// Secure makes the connection to the host one with TLS, within the context. It closes it after an error.
func (f Files) Secure(ctx context.Context, inner net.Conn, host string) (*Conn, error) {
	c, err := f.Config(host)
	if err == nil {
		secured := tls.Client(inner, c)
		if err = secured.HandshakeContext(ctx); err == nil {
			return &Conn{Conn: secured, files: f}, nil
		}
		err = f.Explain(err)
	}
	_ = inner.Close()
	return nil, err
}

// Explain says what an error of TLS means. An error of the network comes back as such.
func (f Files) Explain(err error) error {
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var hostname x509.HostnameError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	n := f.Names
	switch {
	case errors.As(err, &authority):
		return &Error{"the " + n.Server + "'s certificate is signed by an authority that is not trusted", n.ca(), err, false}
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return &Error{"the " + n.Server + "'s certificate is not valid at this time",
			"the " + n.Server + "'s certificate, and this machine's clock", err, false}
	case errors.As(err, &hostname):
		return &Error{"the " + n.Server + "'s certificate is for another name", n.Host, err, false}
	case errors.As(err, &certificate):
		return &Error{"the " + n.Server + "'s certificate is not accepted", n.ca(), err, false}
	case errors.As(err, &record):
		return &Error{"the " + n.Server + " does not speak TLS on this port", n.Port, err, false}
	case IsAlert(err):
		return &Error{"the " + n.Server + " rejects the TLS connection: " + f.presented(), n.cert(), err, false}
	}
	return fmt.Errorf("TLS handshake failed, as it does on a port without TLS: %w", err)
}

// Dropped says what it means that the server closed the connection right after the handshake, without a word: its alert
// is lost when it closes before we have read it.
func (f Files) Dropped(err error) error {
	return &Error{"the " + f.Names.Server + " closes the connection after the TLS handshake: " + f.presented(),
		f.Names.cert(), err, false}
}

// IsAlert reports whether the other side said by TLS that it does not want us.
func IsAlert(err error) bool {
	var remote *net.OpError
	return errors.As(err, &remote) && remote.Op == "remote error"
}

// presented describes our certificate, because a server does not say what is wrong with it.
func (f Files) presented() string {
	if f.CertFile == "" {
		return "no client certificate is configured"
	}
	pair, err := f.pair()
	if err != nil || pair.Leaf == nil {
		return "the client certificate cannot be read"
	}
	state := "is valid until"
	if time.Now().After(pair.Leaf.NotAfter) {
		state = "expired at"
	}
	return fmt.Sprintf("the client certificate of %s, %q, issued by %q, %s %s", f.CertFile, pair.Leaf.Subject,
		pair.Leaf.Issuer, state, pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
}

// Conn is a secured connection.
type Conn struct {
	*tls.Conn

	files    Files
	answered atomic.Bool // the server has said something
	refused  atomic.Pointer[Error]
}

// Refused is why the server wants none of us, as it said instead of its first answer; nil: it did not say so.
func (c *Conn) Refused() error {
	if refused := c.refused.Load(); refused != nil {
		return refused
	}
	return nil
}

// Read is net.Conn. A server that does not like our certificate says so only here, instead of its first answer
// (TLS 1.3).
func (c *Conn) Read(p []byte) (n int, err error) {
	n, err = c.Conn.Read(p)
	if n > 0 {
		c.answered.Store(true)
	}
	if err != nil && !c.answered.Load() {
		err = c.refusal(err)
	}
	return n, err
}

// Write is net.Conn. It reads what the server sent before it closed the connection, if that was not read yet.
func (c *Conn) Write(p []byte) (n int, err error) {
	n, err = c.Conn.Write(p)
	if err != nil && !c.answered.Load() {
		if _, said := c.Conn.Read(make([]byte, 1)); IsAlert(said) {
			err = said
		}
		err = c.refusal(err)
	}
	return n, err
}

// refusal makes an alert one that says what to look at.
func (c *Conn) refusal(err error) error {
	if !IsAlert(err) {
		return err
	}
	refused, _ := errors.AsType[*Error](c.files.Explain(err))
	c.refused.Store(refused)
	return fmt.Errorf("read from the %s: %w", c.files.Names.Server, refused) // go-redis takes one wrapping off
}
