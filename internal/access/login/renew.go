package login

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/access/secret"
)

// Renew gives a configuration that is about to be connected with what the files hold now that its text, a URL or
// key=value pairs, names: certificates, and passwords that no source gives. A pool reads them once.
func Renew(ctx context.Context, conf *pgconn.Config, text string, source *secret.Source) error {
	fresh, err := pgxpool.ParseConfig(text)
	if err != nil {
		return Unusable(err)
	}
	now := &fresh.ConnConfig.Config
	conf.TLSConfig, conf.Fallbacks, conf.Password = now.TLSConfig, now.Fallbacks, now.Password
	return UsePassword(ctx, conf, source)
}

// Unusable is the refusal for a text that cannot be used now, and could be when the configuration was read: a file that
// it names is at fault.
func Unusable(err error) error {
	return &Refusal{Reason: "the files of the connection cannot be used: " + err.Error(), err: err,
		Remedy: "check sslcert, sslkey and sslrootcert of the URL, and that this process may read them; they are read " +
			"again at the next attempt"}
}

// certificate is the client certificate of the configuration, nil without one.
func certificate(conf *pgconn.Config) *x509.Certificate {
	if conf.TLSConfig == nil || len(conf.TLSConfig.Certificates) == 0 {
		return nil
	}
	return conf.TLSConfig.Certificates[0].Leaf
}

// turnedDown reports that a server ended the connection in the way in which it turns down a client certificate: by an
// alert, which is lost where the server closes before it was read.
func turnedDown(err error) bool {
	return isAlert(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// isAlert reports that the server refused us by TLS, as crypto/tls marks it.
func isAlert(err error) bool {
	remote, is := errors.AsType[*net.OpError](err)
	return is && remote.Op == "remote error"
}

// certificateRemedy says what to do where the server turned down the certificate.
func (a attempt) certificateRemedy() string {
	c, end := a.certificate, a.certificate.NotAfter.UTC().Format(time.RFC3339)
	if time.Now().After(c.NotAfter) {
		return fmt.Sprintf("renew the client certificate that sslcert in %s names: %q expired at %s; it is read again at "+
			"the next attempt", a.url, c.Subject, end)
	}
	return fmt.Sprintf("the server turns down the client certificate that sslcert in %s names (%q, issued by %q, valid "+
		"until %s): have it signed by an authority in the server's ssl_ca_file", a.url, c.Subject, c.Issuer, end)
}
