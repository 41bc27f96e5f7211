package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// guarded is a scenario whose relay may do at the broker what ACLs allow.
func guarded(t *testing.T) *scenario {
	t.Helper()
	const plain = "org.apache.kafka.common.security.plain.PlainLoginModule required user_relay=\"hunter2\" " +
		"user_admin=\"secret\";"
	kafka := harness.NewOwnKafka(t, harness.KafkaConfig{
		Settings: map[string]string{"super.users": "User:ANONYMOUS;User:admin",
			"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"},
		Listeners: []harness.Listener{{Name: "GUARDED", Protocol: "SASL_PLAINTEXT", Settings: map[string]string{
			"sasl.enabled.mechanisms": "PLAIN", "plain.sasl.jaas.config": plain}}},
	})
	secret := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(secret, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	return newScenario(t, harness.Postgres(t), kafka, "kafka.brokers", kafka.Listeners["GUARDED"],
		"kafka.sasl.mechanism", "PLAIN", "kafka.sasl.username", "relay", "kafka.sasl.password_file", secret)
}

// acl are ACLs of the relay on topics; none: on the cluster.
func acl(operation kadm.ACLOperation, topics ...string) *kadm.ACLBuilder {
	b := kadm.NewACLs().Operations(operation).Allow("User:relay").AllowHosts("*")
	if len(topics) == 0 {
		return b.Clusters()
	}
	return b.Topics(topics...).ResourcePatternType(kadm.ACLPatternLiteral)
}

func (s *scenario) allow(t *testing.T, b *kadm.ACLBuilder) {
	t.Helper()
	made, err := s.kafka.Admin(t).CreateACLs(t.Context(), b)
	if err == nil && len(made) == 0 {
		err = fmt.Errorf("none was made")
	}
	for _, one := range made {
		if err == nil {
			err = one.Err
		}
	}
	if err != nil {
		t.Fatalf("create an ACL: %v", err)
	}
}

func (s *scenario) forbid(t *testing.T, b *kadm.ACLBuilder) {
	t.Helper()
	gone, err := s.kafka.Admin(t).DeleteACLs(t.Context(), b)
	if err != nil || len(gone) == 0 || gone[0].Err != nil || len(gone[0].Deleted) == 0 {
		t.Fatalf("delete an ACL: %v, %+v", err, gone)
	}
}

// A right of the relay's principal is taken away under load, and given back. Breaks it catches: events of that topic
// that are lost, out of order, or dead letters; others that wait; a status that does not say which right is missing.
func TestRightsThatAreTakenAwayParkTheirTopicOnly(t *testing.T) {
	t.Parallel()
	if harness.Count(t, "brokers broken from outside") == 0 {
		t.Skip("left to the night: it starts a broker of its own")
	}
	s := guarded(t)
	order, payment := s.settings.Topic("order"), s.settings.Topic("payment")
	rights := []kadm.ACLOperation{kadm.OpWrite, kadm.OpDescribe, kadm.OpDescribeConfigs, kadm.OpRead}
	for _, r := range rights {
		s.allow(t, acl(r, order, payment))
	}
	s.relay.Init(t)
	s.start(t)
	load := s.load(t, harness.Workload{Rate: 200, Writers: 2})
	load.WaitCommitted(t, 200, time.Minute)
	for _, lost := range [][]kadm.ACLOperation{{kadm.OpWrite}, rights} {
		for _, r := range lost {
			s.forbid(t, acl(r, order))
		}
		harness.Eventually(t, 2*time.Minute, "events of the topic are parked",
			s.asking(t, "SELECT CASE WHEN count(*) > 20 THEN '' ELSE count(*) || ' are parked' END FROM cdc_relay_parked"))
		_, status := s.relay.Get(t, "/api/v1/status")
		t.Logf("without %v: %s", lost, status)
		if !strings.Contains(status, "kafka-acls.sh --add") || !strings.Contains(status, order) {
			t.Errorf("without %v: the status says nothing of a right on %s", lost, order)
		}
		load.WaitCommitted(t, 100, time.Minute)
		s.relay.WaitReady(t, time.Minute)
		if n := s.pg.Query(t, "SELECT count(*) FROM cdc_relay_parked WHERE topic <> '"+order+"'"); n != "0" {
			t.Errorf("without %v: %s events of another topic are parked", lost, n)
		}
		code, said, _ := s.relay.Run(t, "check")
		t.Logf("check: %d %s", code, said)
		for _, r := range lost {
			s.allow(t, acl(r, order))
		}
		harness.Eventually(t, settlePatience, "nothing is parked",
			s.asking(t, `SELECT coalesce(nullif(count(*), 0) || ' events are parked', '') FROM cdc_relay_parked`))
	}
	for _, r := range rights { // all at once
		s.forbid(t, acl(r, order, payment))
	}
	load.WaitCommitted(t, 200, time.Minute)
	harness.Eventually(t, 2*time.Minute, "the relay says so", func(context.Context) string {
		_, status := s.relay.Get(t, "/api/v1/status")
		if strings.Contains(status, "AUTHORIZATION_FAILED") {
			return ""
		}
		return status
	})
	for _, r := range rights {
		s.allow(t, acl(r, order, payment))
	}
	load.Stop(t)
	s.settled(t)
	s.judge(t, 0)
	if n := s.pg.Query(t, "SELECT count(*) FROM outbox_events_dlq"); n != "0" {
		t.Errorf("%s dead letters, want none", n)
	}
}

// The relay's principal has no right, then all but one, each in turn; a topic is missing. Breaks it catches: a command
// that Kafka's own tools refuse, or that does not fix what check printed it for.
func TestPrintedCommandsAreThoseOfKafkasTools(t *testing.T) {
	t.Parallel()
	if harness.Count(t, "brokers broken from outside") == 0 {
		t.Skip("left to the night: it starts a broker of its own, and a JVM for each command")
	}
	s := guarded(t)
	dir := t.TempDir()
	login := "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=" +
		"org.apache.kafka.common.security.plain.PlainLoginModule required username=\"admin\" password=\"secret\";\n"
	if err := os.WriteFile(filepath.Join(dir, "client.properties"), []byte(login), 0o600); err != nil {
		t.Fatal(err)
	}
	s.relay.Init(t)
	order := s.settings.Topic("order")
	s.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
		VALUES ('order', 'a', 'made', '{}'), ('missing', 'a', 'made', '{}')`)
	printed := regexp.MustCompile(`kafka-(?:topics|acls|configs)[.]sh [^;\n"]*`)
	wantFixed := func(when string) {
		t.Helper()
		var pasted []string
		for range 4 { // what a principal may not see is judged when it may
			_, said, _ := s.relay.Run(t, "check")
			now := printed.FindAllString(said, -1)
			if len(now) == 0 {
				break
			}
			for _, command := range now {
				if out, err := harness.KafkaTool(t, dir, command); err != nil {
					t.Errorf("%s: %s: %v\n%s", when, command, err, out)
				}
			}
			pasted = append(pasted, now...)
		}
		_, said, _ := s.relay.Run(t, "check")
		if len(pasted) == 0 || printed.MatchString(said) || strings.Contains(said, "FAIL") {
			t.Errorf("%s: after\n%s\ngot\n%s", when, strings.Join(pasted, "\n"), said)
		}
		t.Logf("%s:\n%s", when, strings.Join(pasted, "\n"))
	}
	wantFixed("no rights")
	for _, right := range []kadm.ACLOperation{kadm.OpWrite, kadm.OpRead, kadm.OpDescribeConfigs} {
		s.forbid(t, acl(right, order))
		wantFixed("without " + right.String())
	}
}
