package check

import (
	"strings"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/access/login"
)

// Encryption warns of connections to Postgres over a network that may be in clear. It connects to nothing.
func Encryption(cfg config.Config) (warnings []Finding) {
	for _, at := range []struct{ key, url string }{
		{"postgres.url", cfg.Postgres.URL}, {"postgres.replication_url", cfg.Postgres.ReplicationURL},
	} {
		if hosts := login.Unencrypted(at.url); at.url != "" && len(hosts) > 0 {
			warnings = append(warnings, Finding{Name: "encryption", Level: Warn, Fix: login.EncryptRemedy,
				Text: at.key + " may connect to " + strings.Join(hosts, ", ") + " without TLS, and send the password in clear"})
		}
	}
	return warnings
}
