package connect

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/cdc-relay/cdc-relay/secret"
)

// TLS says how to secure the connections. The files are read again at each connect, so that renewed certificates are
// used without a restart; connections that are open keep theirs.
type TLS struct {
	CAFile            string // PEM, the authorities to trust; empty: the system's
	CertFile, KeyFile string // PEM, the client certificate and its key; both or none
	ServerName        string // that the brokers' certificates must have; empty: the host's of each
}

// SASL says how to log in: with user name and password, or, by OAUTHBEARER, with a token from one of four places.
// Files are read again at each connect.
type SASL struct {
	Mechanism    string // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER
	Username     string
	PasswordFile string // the password, with or without the end of its line

	PasswordCommand []string // a program and its arguments that print the password; see package secret

	TokenFile    string                    // the token, with or without the end of its line
	TokenCommand []string                  // a program and its arguments that print it
	OAuth        *secret.ClientCredentials // a server that issues it; nil: none
	AWSRegion    string                    // of Amazon MSK: tokens are signed with AWS's credentials
	Extensions   map[string]string         // that go with the token, such as Confluent Cloud's logicalCluster
}

// LoginError says why a broker and we do not come together although it can be reached: certificate, mechanism, name or
// password. It is nothing that waiting heals: a person must act.
type LoginError struct {
	What  string // what happened
	Check string // what to look at: configuration keys, or something at the broker
	Err   error  // the cause, nil when What says it all
}

// Error says what happened, why, and what to look at.
func (e *LoginError) Error() string {
	if e.Err == nil {
		return e.What + "; check " + e.Check
	}
	return fmt.Sprintf("%s: %v; check %s", e.What, e.Err, e.Check)
}

// Unwrap is the cause.
func (e *LoginError) Unwrap() error { return e.Err }

// IsLoginError reports whether err is, or wraps, a [LoginError].
func IsLoginError(err error) bool {
	var e *LoginError
	return errors.As(err, &e)
}

// The configuration keys that errors name.
const (
	keyTLS   = "kafka.tls.enabled and the port in kafka.brokers"
	keyCA    = "kafka.tls.ca_file"
	keyCert  = "kafka.tls.cert_file and kafka.tls.key_file"
	keyName  = "kafka.tls.server_name, or the host in kafka.brokers"
	keyClock = "the broker's certificate, and this machine's clock"
	keySASL  = "kafka.sasl.mechanism"
)

// config reads the files for a connection to the host.
func (t *TLS) config(host string) (*tls.Config, error) {
	c := &tls.Config{ServerName: cmp.Or(t.ServerName, host), MinVersion: tls.VersionTLS12}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, &LoginError{"the CA file cannot be read", keyCA, err}
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, &LoginError{t.CAFile + " holds no certificate in PEM form", keyCA, nil}
		}
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, &LoginError{"the client certificate cannot be used", keyCert, err}
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// handshake secures the connection, within the context.
func (t *TLS) handshake(ctx context.Context, inner net.Conn, host string) (*tls.Conn, error) {
	c, err := t.config(host)
	if err != nil {
		return nil, err
	}
	secured := tls.Client(inner, c)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, t.explain(err)
	}
	return secured, nil
}

// explain says what an error of TLS means. An error of the network comes back as such.
func (t *TLS) explain(err error) error {
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var hostname x509.HostnameError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var remote *net.OpError
	switch {
	case errors.As(err, &authority):
		return &LoginError{"the broker's certificate is signed by an authority that is not trusted", keyCA, err}
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return &LoginError{"the broker's certificate is not valid at this time", keyClock, err}
	case errors.As(err, &hostname):
		return &LoginError{"the broker's certificate is for another name", keyName, err}
	case errors.As(err, &certificate):
		return &LoginError{"the broker's certificate is not accepted", keyCA, err}
	case errors.As(err, &record):
		return &LoginError{"the broker does not speak TLS on this port", keyTLS, err}
	case errors.As(err, &remote) && remote.Op == "remote error":
		return &LoginError{"the broker rejects the TLS connection: " + t.clientCertificate(), keyCert, err}
	}
	return fmt.Errorf("TLS handshake failed, as it does on a port without TLS: %w", err)
}

// clientCertificate says what there is to say of our certificate, because a broker does not say what is wrong with it.
func (t *TLS) clientCertificate() string {
	if t.CertFile == "" {
		return "no client certificate is configured"
	}
	pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil || pair.Leaf == nil {
		return "the client certificate cannot be read"
	}
	state := "is valid until"
	if time.Now().After(pair.Leaf.NotAfter) {
		state = "expired at"
	}
	return fmt.Sprintf("the client certificate %q, issued by %q, %s %s", pair.Leaf.Subject, pair.Leaf.Issuer, state,
		pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
}

// keys are the configuration's of a login that the broker rejects.
func (s *SASL) keys() string {
	if s.Mechanism == OAuthBearer && s.AWSRegion != "" {
		return s.source().Key() + ", the credentials that AWS's SDK finds, and their policy"
	}
	if s.Mechanism == OAuthBearer {
		return s.source().Key() + ", and that the broker knows issuer, audience and principal of the token"
	}
	return "kafka.sasl.username and " + s.source().Key()
}

func (s *SASL) source() *secret.Source {
	switch {
	case s.Mechanism != OAuthBearer:
		return secret.Of("kafka.sasl", s.PasswordFile, s.PasswordCommand)
	case len(s.TokenCommand) > 0:
		return secret.Command("kafka.sasl.token_command", s.TokenCommand)
	case s.TokenFile != "":
		return secret.File("kafka.sasl.token_file", s.TokenFile)
	case s.AWSRegion != "":
		return secret.MSK("kafka.sasl.aws_region", s.AWSRegion)
	case s.OAuth != nil:
		return secret.OAuth("kafka.sasl.oauth", *s.OAuth)
	}
	return nil
}

// password asks for the secret: a password, or a token.
func (s *SASL) password(ctx context.Context) (string, error) {
	word := "password"
	if s.Mechanism == OAuthBearer {
		word = "token"
	}
	source := s.source()
	if source == nil {
		return "", &LoginError{"there is no " + word, "kafka.sasl", nil}
	}
	password, err := source.Read(ctx)
	if err != nil {
		return "", &LoginError{"the " + word + " cannot be read", source.Key(), err}
	}
	if password == "" {
		return "", &LoginError{s.PasswordFile + s.TokenFile + " holds no " + word, source.Key(), nil}
	}
	return password, nil
}
