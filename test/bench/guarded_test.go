package bench

import (
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// The variants whose connections are encrypted: to Postgres and Kafka both, which are verified.
const (
	overTLS   = "tls"
	overSCRAM = "scram" // and logged in to Kafka by SCRAM-SHA-512
)

// guard is the way in to servers by TLS, beside the plain one, which floors take.
type guard struct {
	authority    *harness.Authority
	passwordFile string
}

const guardPassword = "bench-secret"

// newGuard makes what the servers of a stage show, where a variant asks for it; nil where none does.
func (o options) newGuard(t *testing.T) *guard {
	t.Helper()
	if !slices.ContainsFunc(o.variants, func(v variant) bool { return v.guarded() }) {
		return nil
	}
	g := &guard{authority: harness.NewAuthority(t, "bench"), passwordFile: filepath.Join(t.TempDir(), "password")}
	if err := os.WriteFile(g.passwordFile, []byte(guardPassword+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return g
}

func (v variant) guarded() bool { return v.name == overTLS || v.name == overSCRAM }

func (g *guard) issue(t *testing.T, name string) harness.Certificate {
	t.Helper()
	return g.authority.Issue(t, name, time.Now().Add(24*time.Hour), "127.0.0.1")
}

// kafka adds a listener for each variant to what broker is started.
func (g *guard) kafka(t *testing.T, c harness.KafkaConfig) harness.KafkaConfig {
	t.Helper()
	if g == nil {
		return c
	}
	keys := map[string]string{"ssl.keystore.type": "PEM", "ssl.keystore.location": g.issue(t, "broker").Both}
	login := maps.Clone(keys)
	login["sasl.enabled.mechanisms"] = "SCRAM-SHA-512"
	login["scram-sha-512.sasl.jaas.config"] = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
	c.Scram = append(c.Scram, "SCRAM-SHA-512=[name=bench,password="+guardPassword+"]")
	c.Listeners = append(c.Listeners, harness.Listener{Name: "TLS", Protocol: "SSL", Settings: keys},
		harness.Listener{Name: "SCRAM", Protocol: "SASL_SSL", Settings: login})
	return c
}

// postgres gives a server that runs a certificate. Its files must be its account's own.
func (g *guard) postgres(t *testing.T, server *harness.PG) {
	t.Helper()
	if g == nil {
		return
	}
	c := g.issue(t, "postgres")
	for name, from := range map[string]string{"server.crt": c.CertFile, "server.key": c.KeyFile} {
		path := filepath.Join(server.Server.Dir(), "data", name)
		harness.CopyFile(t, path, from)
		harness.GiveAway(t, path)
	}
	server.Exec(t, "ALTER SYSTEM SET ssl = on")
	server.Exec(t, "SELECT pg_reload_conf()")
}

// address is the server's, as a variant's relay takes it, and so its floors.
func (g *guard) address(t *testing.T, v variant, postgres string) string {
	t.Helper()
	if !v.guarded() {
		return postgres
	}
	at, err := url.Parse(postgres)
	if err != nil {
		t.Fatal(err)
	}
	way := at.Query()
	way.Set("sslmode", "verify-full")
	way.Set("sslrootcert", g.authority.File)
	at.RawQuery = way.Encode()
	return at.String()
}

// settings are those of a variant's relay.
func (g *guard) settings(t *testing.T, v variant, kafka *harness.Cluster, postgres string) []any {
	t.Helper()
	if !v.guarded() {
		return nil
	}
	all := []any{"postgres.url", g.address(t, v, postgres), "kafka.brokers", kafka.Listeners["TLS"],
		"kafka.tls.enabled", true, "kafka.tls.ca_file", g.authority.File}
	if v.name == overSCRAM {
		all = append(all, "kafka.brokers", kafka.Listeners["SCRAM"], "kafka.sasl.mechanism", "SCRAM-SHA-512",
			"kafka.sasl.username", "bench", "kafka.sasl.password_file", g.passwordFile)
	}
	return all
}

// checkGuarded fails when the relay of a guarded variant reads its stream over a plain connection: its figures would be
// another one's.
func (r *run) checkGuarded() {
	r.t.Helper()
	var encrypted bool
	r.one(`SELECT s.ssl FROM pg_stat_ssl s JOIN pg_replication_slots ON active_pid = s.pid WHERE slot_name = $1`,
		&encrypted, r.slot())
	if encrypted != r.variant.guarded() {
		r.t.Fatalf("the relay %q: its stream is encrypted: %t", r.variant.name, encrypted)
	}
}
