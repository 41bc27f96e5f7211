// Package login explains why a Postgres server refused a log-in: its message, whether a new attempt can cure that, and
// what to do. It connects to nothing, and shows no password.
package login

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/access/secret"
)

// Refusal is why no connection came about. It is in the chain of the errors that connecting gives, and they are in
// its own.
type Refusal struct {
	Reason    string // in one line, with role, database and server
	Remedy    string
	Permanent bool // no new attempt can cure it: the Remedy has to be carried out
	// NoReplication is the role that may log in, but not stream; "" where it is something else.
	NoReplication string

	err error
}

func (r *Refusal) Error() string { return r.Reason }

func (r *Refusal) Unwrap() error { return r.err }

// Of is the refusal that an error is about, nil without one.
func Of(err error) *Refusal {
	r, _ := errors.AsType[*Refusal](err)
	return r
}

// UsePassword puts the password that the source has now into a configuration that is about to be connected with; a nil
// source leaves the URL's. The error is a *Refusal that passes when the file or the program is fixed.
func UsePassword(ctx context.Context, conf *pgconn.Config, source *secret.Source) (err error) {
	if source == nil {
		return nil
	}
	if conf.Password, err = source.Read(ctx); err == nil {
		return nil
	}
	return &Refusal{Reason: "no password for Postgres: " + err.Error(), err: err,
		Remedy: "fix " + source.Key() + " names, and try it as the user of this process; " +
			"it is asked again at the next attempt"}
}

// Explain puts a *Refusal around an error of connecting, with a password of the source if there is one. Any other error
// is returned as it is. A password that a program made and the server refused may be followed by a better one: the
// source is notified, and the refusal is not permanent.
func Explain(err error, password *secret.Source) error {
	failed, ok := errors.AsType[*pgconn.ConnectError](err)
	if !ok || Of(err) != nil {
		return err
	}
	a := attempt{role: failed.Config.User, database: failed.Config.Database, url: "postgres.url",
		certificate: certificate(failed.Config)}
	if failed.Config.RuntimeParams["replication"] != "" {
		a.replication, a.url = true, "postgres.replication_url (without one, postgres.url)"
	}
	r := &Refusal{Permanent: true, err: err}
	var said []string
	for _, one := range attempts(failed.Unwrap()) {
		remedy, permanent := a.remedy(one)
		if pg, is := errors.AsType[*pgconn.PgError](one); is && a.mayNotStream(pg) {
			r.NoReplication = a.role
		}
		if r.Remedy == "" || !permanent {
			r.Remedy = remedy
		}
		r.Permanent = r.Permanent && permanent // another host may be the one that takes us
		// A host is tried twice, with TLS and without.
		if text := strings.Join(strings.Fields(one.Error()), " "); !slices.Contains(said, text) {
			said = append(said, text)
		}
	}
	if refusedPassword(err) && password.Refused() {
		r.Permanent = false
		r.Remedy = "see what " + password.Key() + " prints for this role; it is run again for the next attempt"
	}
	r.Reason = fmt.Sprintf("role %s, database %s: %s", a.role, a.database, strings.Join(said, "; "))
	return r
}

// attempts are the errors of the hosts that were tried. That a server refused TLS is none of them where the driver
// went on without it, as sslmode=prefer does.
func attempts(err error) (list []error) {
	var all []error
	if many, is := err.(interface{ Unwrap() []error }); is {
		all = many.Unwrap()
	} else {
		all = []error{err}
	}
	for _, one := range all {
		if !refusedTLS(one) {
			list = append(list, one)
		}
	}
	if len(list) == 0 {
		return all[:1]
	}
	return list
}

// refusedTLS knows the driver's own text: it has no value for it.
func refusedTLS(err error) bool {
	return strings.HasSuffix(err.Error(), "server refused TLS connection")
}

// wsaeconnrefused is the error of a refused connection on Windows (WSAECONNREFUSED in winsock2.h): Go's
// syscall.ECONNREFUSED is another number there, which the system never gives. No other system has an error of this
// number.
const wsaeconnrefused = syscall.Errno(10061)

// attempt describes a log-in attempt.
type attempt struct {
	role, database, url string // url: the key of the configuration
	replication         bool
	certificate         *x509.Certificate // of ours; nil: none
}

// remedy says what to do about an error of one host, and whether nothing else can cure it.
func (a attempt) remedy(err error) (text string, permanent bool) {
	if pg, is := errors.AsType[*pgconn.PgError](err); is {
		return a.refused(pg)
	}
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, unfit := errors.AsType[*tls.CertificateVerificationError](err)
	_, lookup := errors.AsType[*net.DNSError](err)
	switch {
	case refusedTLS(err):
		return "the server offers no TLS: turn ssl on in postgresql.conf, or set sslmode=disable in " + a.url, true
	case unknown, unfit:
		return "set sslrootcert in " + a.url + " to the authority that signed the server's certificate, and the host to a " +
			"name in it", true
	case a.certificate != nil && turnedDown(err):
		return a.certificateRemedy(), isAlert(err) || time.Now().After(a.certificate.NotAfter)
	case lookup:
		return "check the host in " + a.url + ", and that this machine can resolve it", false
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, wsaeconnrefused):
		return "nothing listens there: check that Postgres runs, and host and port in " + a.url, false
	}
	return "check that Postgres runs, host and port in " + a.url + ", and the network between", false
}

// refusedPassword reports that a server did not take the password, as PAM's or a cloud's own login says it, too.
func refusedPassword(err error) bool {
	pg, is := errors.AsType[*pgconn.PgError](err)
	return is && (pg.Code == "28P01" || pg.Code == "28000" && strings.Contains(pg.Message, "authentication failed"))
}

// refused says what to do about what the server said. Where one code stands for several things its English text
// tells them apart; other languages get the general answer.
func (a attempt) refused(pg *pgconn.PgError) (text string, permanent bool) {
	role, database := pgx.Identifier{a.role}.Sanitize(), pgx.Identifier{a.database}.Sanitize()
	has := func(part string) bool { return strings.Contains(pg.Message, part) }
	switch {
	case pg.Code == "42704": // undefined_object, while the session's parameters are set
		return "Postgres takes what it does not know in " + a.url + " for a setting of the session: leave it out. " +
			"?schema= is " +
			"of other programs; this one has postgres.schema, and a table's schema in outbox.table", true
	case a.role == "":
		return "name the role in " + a.url + ": it names none, and the user of this process has no name", true
	case pg.Code == "28P01":
		return "set the role's password in " + a.url + " or in the file of postgres.password_file, or give the role this " +
			"one: ALTER ROLE " + role + " PASSWORD '…';", true
	case pg.Code == "28000" && has("does not exist"):
		return "CREATE ROLE " + role + a.attributes() + "; or name another role in " + a.url +
			"; cdc-relay init --roles makes both roles", true
	case pg.Code == "28000" && has("not permitted to log in"):
		return "ALTER ROLE " + role + " LOGIN;", true
	case pg.Code == "28000" && has("certificate"):
		return "set sslcert and sslkey in " + a.url + " to a certificate for role " + a.role + " (its common name, where " +
			"pg_hba.conf has no map) that an authority in the server's ssl_ca_file has signed", true
	case a.mayNotStream(pg):
		return "ALTER ROLE " + role + " REPLICATION; (RDS: GRANT rds_replication TO " + role + ";)", true
	case pg.Code == "28000":
		return "let the role in: a line of pg_hba.conf such as: host " + a.database + " " + a.role +
			" ADDRESS scram-sha-256, then SELECT pg_reload_conf();", true
	case pg.Code == "3D000":
		return "CREATE DATABASE " + database + "; or name the right one in " + a.url, true
	case pg.Code == "42501":
		return "GRANT CONNECT ON DATABASE " + database + " TO " + role + ";", true
	case pg.Code == "53300":
		return "wait, close unneeded connections, or raise max_connections (max_wal_senders for replication)", false
	}
	return "it passes when the server lets connections in again", false
}

// mayNotStream reports that the role lacks the right to replicate.
func (a attempt) mayNotStream(pg *pgconn.PgError) bool {
	has := func(part string) bool { return strings.Contains(pg.Message, part) }
	return pg.Code == "28000" && has("replication") && !has("pg_hba") ||
		pg.Code == "42501" && a.replication && !has("database")
}

// attributes are those that a new role needs.
func (a attempt) attributes() string {
	if a.replication {
		return " LOGIN REPLICATION"
	}
	return " LOGIN"
}
