package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// The rows choose four topics: one is there and may be written, one may not be seen, one is not there, one may be seen
// and not written. Breaks it catches: a principal that sees no topic told that all is well, or to create what exists; a
// topic that a row chooses and no one looks for. Seen to fail with the rows not looked at, and with a topic that may
// not be seen taken for one that is not there, and with a creation that is denied fixed by one that is.
func TestCheckComparesTheTopicsOfRowsWithWhatThePrincipalSees(t *testing.T) {
	t.Parallel()
	acl := func(name string, operations ...kmsg.ACLOperation) (list []kfake.ACL) {
		for _, operation := range operations {
			list = append(list, kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "outbox.event." + name,
				Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: operation, Allow: true})
		}
		return list
	}
	rights := append(acl("seen", kmsg.ACLOperationDescribe, kmsg.ACLOperationDescribeConfigs, kmsg.ACLOperationWrite,
		kmsg.ACLOperationRead),
		acl("absent", kmsg.ACLOperationDescribe)...)
	rights = append(rights, acl("read", kmsg.ACLOperationDescribe, kmsg.ACLOperationRead)...)
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.SeedTopics(1, "outbox.event.seen", "outbox.event.hidden", "outbox.event.read"),
		kfake.User("PLAIN", "ann", "secret", rights...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	pg := harness.Postgres(t)
	environ := []string{
		"CDC_RELAY_POSTGRES_URL=" + pg.URL, "CDC_RELAY_KAFKA_BROKERS=" + broker.ListenAddrs()[0],
		"CDC_RELAY_POSTGRES_SLOT=" + harness.Unique(t, "slot"), "CDC_RELAY_KAFKA_SASL_MECHANISM=PLAIN",
		"CDC_RELAY_KAFKA_SASL_USERNAME=ann", "CDC_RELAY_KAFKA_SASL_PASSWORD_FILE=" + file,
	}
	cdcRelay(t, environ, "init").want(t, exitDone, nil, nil)
	pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
		SELECT kind, 'a', 'made', '{}' FROM unnest(ARRAY['seen', 'hidden', 'absent', 'read']) kind`)
	cdcRelay(t, environ, "check").want(t, exitFailed, []string{
		"topic outbox.event.seen: 1 partitions",
		"FAIL  topic outbox.event.hidden: the principal ann may not see it", "--allow-principal User:ann " +
			"--operation Write --operation Describe --operation DescribeConfigs --operation Read --topic outbox.event.hidden",
		"FAIL  topic outbox.event.absent: it does not exist", "kafka-topics.sh --create --topic outbox.event.absent",
		"FAIL  topic outbox.event.read: we may not write to it", "!--create --topic outbox.event.hidden", "!{aggregate_type}",
	}, nil)
	cdcRelay(t, environ, "check", "--set", "kafka.create_topics.enabled=true").want(t, exitFailed, []string{
		"FAIL  topic outbox.event.absent: it does not exist, and the principal ann may not create it",
		"--operation Create --operation Write", "!kafka-topics.sh --create --topic outbox.event.absent",
	}, nil)
}

// Breaks it catches: a topic for copies that no one looks for until an event dies; one taken for an event's. Seen to
// fail with the copies' topics not looked at, and with them among those of events.
func TestCheckLooksForTheTopicsOfCopies(t *testing.T) {
	t.Parallel()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1),
		kfake.SeedTopics(1, "outbox.event.order", "outbox.event.order.dlq", "outbox.event.payment", "dead.made"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	pg := harness.Postgres(t)
	environ := []string{
		"CDC_RELAY_POSTGRES_URL=" + pg.URL, "CDC_RELAY_KAFKA_BROKERS=" + broker.ListenAddrs()[0],
		"CDC_RELAY_POSTGRES_SLOT=" + harness.Unique(t, "slot"),
	}
	cdcRelay(t, environ, "init").want(t, exitDone, nil, nil)
	pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'order', 'a', kind, '{}' FROM unnest(ARRAY['made', 'gone', 'made again']) kind`)
	cdcRelay(t, environ, "check", "--dlq-topic", "{topic}.dlq").want(t, exitFailed, []string{
		" topic outbox.event.order: 1 partitions", " dlq topic outbox.event.order.dlq: 1 partitions",
		"FAIL  dlq topic outbox.event.payment.dlq: it does not exist; dead letters wait for it",
		"kafka-topics.sh --create --topic outbox.event.payment.dlq", "!  topic outbox.event.order.dlq", "!.dlq.dlq",
	}, nil)
	cdcRelay(t, environ, "check", "--dlq-topic", "dead.{event_type}").want(t, exitFailed, []string{
		" dlq topic dead.made: 1 partitions", "FAIL  dlq topic dead.gone: it does not exist",
		"dlq topic dead.made again: such a name may have only",
	}, nil)
	cdcRelay(t, environ, "check", "--dlq-topic", "dead.all").want(t, exitFailed, []string{
		"FAIL  dlq topic dead.all: it does not exist",
	}, nil)
}

// Break it catches: a topic for each row, and check says nothing of it. Seen to fail without the warning, and with ids
// not looked for.
func TestCheckWarnsOfTemplatesWithManyTopics(t *testing.T) {
	t.Parallel()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	pg := harness.Postgres(t)
	environ := []string{
		"CDC_RELAY_POSTGRES_URL=" + pg.URL, "CDC_RELAY_KAFKA_BROKERS=" + broker.ListenAddrs()[0],
		"CDC_RELAY_POSTGRES_SLOT=" + harness.Unique(t, "slot"),
	}
	cdcRelay(t, environ, "init").want(t, exitDone, nil, nil)
	pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'kind', i, 'made', '{}' FROM generate_series(1, 300) i`)
	for topic, texts := range map[string][]string{
		"t.{id}":             {"warn  message.topic: t.{id}: each row has its own id", "limits.topics, 10000"},
		"t.{aggregate_id}":   {"warn  message.topic: t.{aggregate_id}: the rows choose 200 topics or more"},
		"t.{aggregate_type}": {"!message.topic: t."},
	} {
		cdcRelay(t, environ, "check", "--set", "message.topic="+topic).want(t, exitFailed, texts, nil)
	}
}

// The whole name of the topic is a column's. Break it catches: a check that judges every topic of the cluster, as no
// beginning tells which are ours.
func TestCheckJudgesTheTopicsThatRowsName(t *testing.T) {
	t.Parallel()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "ours", "foreign.a", "foreign.b"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	pg := harness.Postgres(t)
	environ := []string{
		"CDC_RELAY_POSTGRES_URL=" + pg.URL, "CDC_RELAY_KAFKA_BROKERS=" + broker.ListenAddrs()[0],
		"CDC_RELAY_POSTGRES_SLOT=" + harness.Unique(t, "slot"), "CDC_RELAY_MESSAGE_TOPIC={topic}",
	}
	pg.Exec(t, `CREATE TABLE outbox_events (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), topic text,
		aggregate_type text, aggregate_id text, event_type text NOT NULL, payload jsonb, headers jsonb,
		created_at timestamptz NOT NULL DEFAULT now(), published_at timestamptz) WITH (fillfactor = 80)`)
	cdcRelay(t, environ, "init").want(t, exitDone, nil, nil)
	cdcRelay(t, environ, "check").want(t, exitDone, []string{"warn  topics: message.topic {topic} can name any topic",
		"!foreign."}, nil)
	pg.Exec(t, `INSERT INTO outbox_events (topic, event_type) VALUES ('ours', 'made'), ('missing', 'made')`)
	cdcRelay(t, environ, "check").want(t, exitFailed, []string{" topic ours: 1 partitions",
		"FAIL  topic missing: it does not exist", "kafka-topics.sh --create --topic missing", "!foreign."}, nil)
}
