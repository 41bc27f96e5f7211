package config

import (
	"strings"
	"testing"
)

// Seen to fail with nothing masked.
func TestRedactedHidesAndLeavesTheOriginal(t *testing.T) {
	cfg := Default()
	cfg.Postgres.URL = "postgres://a:hunter2@h/d"
	cfg.Postgres.ReplicationURL = "host=h password=hunter2"
	r := cfg.Redacted()
	if strings.Contains(r.Postgres.URL+r.Postgres.ReplicationURL, "hunter2") {
		t.Errorf("got %q and %q, want no password", r.Postgres.URL, r.Postgres.ReplicationURL)
	}
	if !strings.Contains(cfg.Postgres.URL, "hunter2") || r.Postgres.Slot != cfg.Postgres.Slot {
		t.Errorf("got the original changed: %q, or other keys: %q", cfg.Postgres.URL, r.Postgres.Slot)
	}
}

// Seen to fail with only keys masked that are called password.
func TestPasswordKeysAreMaskedByName(t *testing.T) {
	if got := (Key{Name: "kafka.sasl.old_password"}).mask("hunter2"); got == "hunter2" {
		t.Errorf("got %q, want it masked", got)
	}
}

// Break it catches: a password, or a token of NATS, in what a person sees of a wrong configuration. Seen to fail with
// the text quoted before it is masked, and with a user of nats.url taken for a name.
func TestSecretsAreNotShownByProblems(t *testing.T) {
	_, err := Load(Input{Environ: []string{
		"CDC_RELAY_POSTGRES_URL=host=h password='a\\' hunter2' \x00",
		"CDC_RELAY_POSTGRES_REPLICATION_URL=postgres://a@b:hunter2@c:x/d",
		"CDC_RELAY_NATS_URL=nats://hunter2@h:x", "CDC_RELAY_SINK=nats",
	}})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v, want problems without a secret", err)
	}
	for _, key := range []string{"postgres.url", "postgres.replication_url", "nats.url"} {
		if !strings.Contains(err.Error(), key) {
			t.Errorf("got %v, want something of %s", err, key)
		}
	}
	cfg := Default()
	cfg.NATS.URL = "nats://hunter2@h:4222"
	cfg.Kafka.SASL.OAuth.Parameters = map[string]string{"Client_Secret": "hunter2", "audience": "shown"}
	r := cfg.Redacted()
	if got := r.NATS.URL + r.Kafka.SASL.OAuth.Parameters["Client_Secret"]; strings.Contains(got, "hunter2") {
		t.Errorf("got %s shown, want it masked", got)
	}
	if r.Kafka.SASL.OAuth.Parameters["audience"] != "shown" {
		t.Errorf("got %v, want the audience as it is", r.Kafka.SASL.OAuth.Parameters)
	}
}
