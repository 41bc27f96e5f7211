package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// administrator is a client that may do anything.
func administrator(t *testing.T, broker *kfake.Cluster) *kadm.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.ListenAddrs()...),
		kgo.SASL(plain.Auth{User: "root", Pass: "secret"}.AsMechanism()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return kadm.NewClient(client)
}

var (
	printed  = regexp.MustCompile(`kafka-(topics|acls|configs)[.]sh [^;\n"]*`)
	ofOption = regexp.MustCompile(`--([a-z-]+)(?: ([^-\s][^\s]*))?`)
)

// paste does what the printed commands of Kafka's tools would do, and returns them. An option that the tool does not
// have is an error.
func paste(t *testing.T, admin *kadm.Client, text string) (commands []string) {
	t.Helper()
	known := map[string][]string{
		"topics":  {"create", "topic", "partitions", "replication-factor", "bootstrap-server", "command-config"},
		"configs": {"alter", "entity-type", "entity-name", "add-config", "bootstrap-server", "command-config"},
		"acls": {"add", "allow-principal", "operation", "topic", "cluster", "resource-pattern-type", "bootstrap-server",
			"command-config"},
	}
	for _, found := range printed.FindAllStringSubmatch(text, -1) {
		command, tool := strings.TrimSpace(found[0]), found[1]
		commands = append(commands, command)
		options := map[string][]string{}
		for _, o := range ofOption.FindAllStringSubmatch(command, -1) {
			if !slices.Contains(known[tool], o[1]) {
				t.Errorf("%s: no option --%s", command, o[1])
			}
			options[o[1]] = append(options[o[1]], o[2])
		}
		if len(options["bootstrap-server"]) != 1 || options["bootstrap-server"][0] == "" {
			t.Errorf("%s: no brokers", command)
			continue
		}
		do := map[string]func(context.Context, *kadm.Client, map[string][]string) error{
			"topics": pasteTopic, "configs": pasteConfig, "acls": pasteGrant}[tool]
		if err := do(t.Context(), admin, options); err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
	return commands
}

func pasteTopic(ctx context.Context, admin *kadm.Client, o map[string][]string) error {
	partitions, _ := strconv.Atoi(o["partitions"][0])
	replicas, _ := strconv.Atoi(o["replication-factor"][0])
	made, err := admin.CreateTopic(ctx, int32(partitions), int16(replicas), nil, o["topic"][0])
	if err != nil {
		return err
	}
	return made.Err
}

func pasteConfig(ctx context.Context, admin *kadm.Client, o map[string][]string) error {
	key, value, _ := strings.Cut(o["add-config"][0], "=")
	changed, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}},
		o["entity-name"][0])
	if err != nil {
		return err
	}
	return changed[0].Err
}

func pasteGrant(ctx context.Context, admin *kadm.Client, o map[string][]string) error {
	var operations []kadm.ACLOperation
	for _, name := range o["operation"] {
		operation, err := kmsg.ParseACLOperation(name)
		if err != nil {
			return err
		}
		operations = append(operations, operation)
	}
	acls := kadm.NewACLs().Operations(operations...).Allow(o["allow-principal"]...).AllowHosts("*").
		ResourcePatternType(kadm.ACLPatternLiteral)
	if slices.Equal(o["resource-pattern-type"], []string{"prefixed"}) {
		acls.ResourcePatternType(kadm.ACLPatternPrefixed)
	}
	if acls.Topics(o["topic"]...); len(o["cluster"]) > 0 {
		acls.Clusters()
	}
	made, err := admin.CreateACLs(ctx, acls)
	for _, one := range made {
		if err == nil {
			err = one.Err
		}
	}
	return err
}

// The principal has all rights that the relay uses but one, each in turn, and then none; a topic is missing. Breaks it
// catches: a right that check does not miss, or whose remedy lacks another one; a command that fails when it is pasted.
func TestPastedCommandsOfCheckFixWhatItFound(t *testing.T) {
	t.Parallel()
	const topic = "outbox.event.order"
	rights := []kmsg.ACLOperation{kmsg.ACLOperationDescribeConfigs, kmsg.ACLOperationWrite, kmsg.ACLOperationRead}
	acl := func(operation kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: topic, Pattern: kmsg.ACLResourcePatternTypeLiteral,
			Operation: operation, Allow: true}
	}
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	options := []kfake.Opt{kfake.NumBrokers(1), kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(1, topic),
		kfake.Superuser("PLAIN", "root", "secret"), kfake.User("PLAIN", "none", "secret")}
	for _, missing := range rights {
		has := []kfake.ACL{acl(kmsg.ACLOperationDescribe)}
		for _, right := range rights {
			if right != missing {
				has = append(has, acl(right))
			}
		}
		options = append(options, kfake.User("PLAIN", missing.String(), "secret", has...))
	}
	broker, err := kfake.NewCluster(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	admin, pg := administrator(t, broker), harness.Postgres(t)
	environ := []string{
		"CDC_RELAY_POSTGRES_URL=" + pg.URL, "CDC_RELAY_KAFKA_BROKERS=" + broker.ListenAddrs()[0],
		"CDC_RELAY_POSTGRES_SLOT=" + harness.Unique(t, "slot"), "CDC_RELAY_KAFKA_SASL_MECHANISM=PLAIN",
		"CDC_RELAY_KAFKA_SASL_PASSWORD_FILE=" + file,
	}
	cdcRelay(t, environ, "init", "--kafka-sasl-username", "none").want(t, exitDone, nil, nil)
	pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
		VALUES ('order', 'a', 'made', '{}')`)
	check := func(user string) string {
		done := cdcRelay(t, environ, "check", "--kafka-sasl-username", user)
		var lines []string
		for line := range strings.Lines(done.out) {
			if strings.Contains(line, topic) || strings.Contains(line, "producer") || strings.Contains(line, "kafka-") {
				lines = append(lines, line)
			}
		}
		return strings.Join(lines, "")
	}
	wantFixed := func(user, text string) {
		t.Helper()
		before := check(user)
		if !strings.Contains(before, text) {
			t.Errorf("%s: got\n%s\nwant it to say %q", user, before, text)
		}
		if commands := paste(t, admin, before); len(commands) == 0 {
			t.Errorf("%s: no command in\n%s", user, before)
		}
		if after := check(user); strings.Contains(after, "FAIL") || strings.Contains(after, "kafka-acls.sh") ||
			strings.Contains(after, "kafka-topics.sh") {
			t.Errorf("%s: after the commands of\n%s\ngot\n%s", user, before, after)
		}
	}
	wantFixed("WRITE", "lacks Write")
	wantFixed("READ", "lacks Read")
	wantFixed("DESCRIBE_CONFIGS", "its configuration cannot be read")
	wantFixed("none", "the principal none may not see it")

	if _, err := admin.DeleteTopics(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	wantFixed("none", "it does not exist")
}
