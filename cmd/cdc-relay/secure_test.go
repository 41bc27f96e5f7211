package main

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks when a command speaks with the brokers past the configured TLS and SASL, or does not say what is wrong with
// them. Seen to fail with the login left out when a broker is asked.
func TestCommandsLogInToTheBrokers(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	trusted, other := harness.NewAuthority(t, "trusted"), harness.NewAuthority(t, "other")
	c := trusted.Issue(t, "broker", time.Now().Add(time.Hour), "127.0.0.1")
	certificate, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "outbox.event.order"), kfake.EnableSASL(),
		kfake.Superuser("SCRAM-SHA-256", "alice", "secret"),
		kfake.TLS(&tls.Config{Certificates: []tls.Certificate{certificate}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newServices(t, orderTopic)
	environ := append(s.environ, "CDC_RELAY_KAFKA_BROKERS="+broker.ListenAddrs()[0], "CDC_RELAY_KAFKA_TLS_ENABLED=true",
		"CDC_RELAY_KAFKA_TLS_CA_FILE="+trusted.File, "CDC_RELAY_KAFKA_SASL_MECHANISM=SCRAM-SHA-256",
		"CDC_RELAY_KAFKA_SASL_USERNAME=alice", "CDC_RELAY_KAFKA_SASL_PASSWORD_FILE="+file)
	cdcRelay(t, environ, "init").want(t, exitDone, nil, nil)
	s.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
 VALUES ('order', 'a', 'placed', '{}')`)
	cdcRelay(t, environ, "check").want(t, exitDone,
		[]string{"answers over TLS and takes alice by SCRAM-SHA-256", "ok    producer: ",
			"topic outbox.event.order: 3 partitions", "!FAIL"}, nil)
	ours := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the broker is ours
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.ListenAddrs()...), kgo.DialTLSConfig(ours),
		kgo.SASL(scram.Auth{User: "alice", Pass: "secret"}.AsSha256Mechanism()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(t.Context(),
		&kgo.Record{Topic: "outbox.event.order", Value: []byte("not ours")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	cdcRelay(t, environ, "verify").want(t, exitFailed, []string{"missing        1", "other records  1", "is in no topic"},
		nil)

	cdcRelay(t, append(environ, "CDC_RELAY_KAFKA_TLS_CA_FILE="+other.File), "check").
		want(t, exitFailed, []string{"FAIL  broker ", "not trusted", "kafka.tls.ca_file", "fix what the error names"},
			nil)
	cdcRelay(t, append(environ, "CDC_RELAY_KAFKA_SASL_PASSWORD_FILE=/no/such/file"), "check").
		want(t, exitFailed, []string{"FAIL  broker ", "kafka.sasl.password_file"}, nil)
}
