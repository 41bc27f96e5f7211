package login

import (
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Unencrypted are the hosts beyond this machine that a connection with this text, a URL or key=value pairs, may talk to
// without TLS: its sslmode is disable, allow or prefer, which is the default. An attacker in between can have the
// password sent in clear. A text that is not understood has none.
func Unencrypted(text string) (hosts []string) {
	conf, err := pgconn.ParseConfig(text)
	if err != nil {
		return nil
	}
	add := func(host string, encrypted bool) {
		ip := net.ParseIP(host)
		switch {
		case encrypted, host == "localhost", strings.HasPrefix(host, "/"):
		case ip != nil && ip.IsLoopback(), slices.Contains(hosts, host):
		default:
			hosts = append(hosts, host)
		}
	}
	add(conf.Host, conf.TLSConfig != nil)
	for _, f := range conf.Fallbacks {
		add(f.Host, f.TLSConfig != nil)
	}
	return hosts
}

// EncryptRemedy returns the remedy for the hosts that Unencrypted names.
const EncryptRemedy = "add sslmode=verify-full, and sslrootcert if the server's authority is your own; " +
	"require_auth=scram-sha-256 also keeps a server from asking for the password itself"
