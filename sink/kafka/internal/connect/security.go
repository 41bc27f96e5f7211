package connect

import (
	"context"
	"net"

	"github.com/cdc-relay/cdc-relay/internal/access/certs"
	"github.com/cdc-relay/cdc-relay/internal/access/secret"
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
	AWSRegion    string                    // of Amazon MSK: Sign signs tokens for it
	Sign         secret.Signer
	Extensions   map[string]string // that go with the token, such as Confluent Cloud's logicalCluster
}

// LoginError says why a broker and we do not come together although it can be reached: certificate, mechanism, name or
// password. It is nothing that waiting heals: a person must act.
type LoginError = certs.Error

// IsLoginError reports whether err is, or wraps, a [LoginError].
func IsLoginError(err error) bool { return certs.IsError(err) }

// The configuration keys that errors name.
const (
	keyTLS  = "kafka.tls.enabled and the port in kafka.brokers"
	keyName = "kafka.tls.server_name, or the host in kafka.brokers"
	keySASL = "kafka.sasl.mechanism"
)

// files are those that the connections are secured by.
func (t *TLS) files() certs.Files {
	return certs.Files{CAFile: t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile, ServerName: t.ServerName,
		Names: certs.Names{Server: "broker", Section: "kafka.tls", Host: keyName, Port: keyTLS}}
}

// handshake secures the connection, within the context.
func (t *TLS) handshake(ctx context.Context, inner net.Conn, host string) (net.Conn, error) {
	secured, err := t.files().Secure(ctx, inner, host)
	if err != nil {
		return nil, err // and no interface around a nil
	}
	return secured, nil
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
	case s.AWSRegion != "" && s.Sign != nil:
		return secret.Signed("kafka.sasl.aws_region", s.AWSRegion, s.Sign)
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
		return "", &LoginError{What: "there is no " + word, Check: "kafka.sasl"}
	}
	password, err := source.Read(ctx)
	if err != nil {
		return "", &LoginError{What: "the " + word + " cannot be read", Check: source.Key(), Err: err}
	}
	if password == "" {
		return "", &LoginError{What: s.PasswordFile + s.TokenFile + " holds no " + word, Check: source.Key()}
	}
	return password, nil
}
