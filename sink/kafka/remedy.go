package kafka

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/plain"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/codes"
)

// This file says what a person can do about a topic that cannot be used, by commands of Kafka's own tools. Each can be
// pasted as it is, except where the configuration does not tell the principal.

// Command is the command by which a person creates the topic.
func (c Config) Command(topic string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "kafka-topics.sh --create --topic %s", plain.Word(topic))
	if n := c.NewTopics.Partitions; n > 0 {
		fmt.Fprintf(&b, " --partitions %d", n)
	}
	if n := c.NewTopics.ReplicationFactor; n > 0 {
		fmt.Fprintf(&b, " --replication-factor %d", n)
	}
	return b.String() + c.connection()
}

// AlterCommand is the command that sets a topic's configuration, such as min.insync.replicas=2.
func (c Config) AlterCommand(topic, setting string) string {
	return "kafka-configs.sh --alter --entity-type topics --entity-name " + plain.Word(topic) + " --add-config " +
		plain.Word(setting) + c.connection()
}

// GrantCommand returns the command of Kafka's tool that grants the principal all that the relay does with a topic. A
// name that ends in * is that of all topics that begin so.
func (c Config) GrantCommand(topic string) string { return c.grantTopic(topic, rights...) }

// GrantCreateCommand returns the command that lets the principal create the topic, too.
func (c Config) GrantCreateCommand(topic string) string {
	return c.grantTopic(topic, append([]string{"Create"}, rights...)...)
}

// GrantProducerCommand returns the command that grants the principal an idempotent producer, for brokers before Kafka
// 3.0; since then Write on any topic does.
func (c Config) GrantProducerCommand() string { return c.grant("--cluster", "IdempotentWrite") }

// rights lists the operations that the relay uses on a topic. It reads after a crash, and for verify.
var rights = []string{"Write", "Describe", "DescribeConfigs", "Read"}

func (c Config) grantTopic(topic string, operations ...string) string {
	name, prefixed := strings.CutSuffix(topic, "*")
	on := "--topic " + plain.Word(topic)
	if prefixed && name != "" {
		on = "--topic " + plain.Word(name) + " --resource-pattern-type prefixed"
	}
	return c.grant(on, operations...)
}

func (c Config) grant(on string, operations ...string) string {
	return "kafka-acls.sh --add --allow-principal " + plain.Word("User:"+c.Principal()) + " --operation " +
		strings.Join(operations, " --operation ") + " " + on + c.connection()
}

// connection are the options of the tools that lead to the brokers.
func (c Config) connection() string {
	text := " --bootstrap-server " + plain.Word(strings.Join(c.Brokers, ","))
	if c.TLS != nil || c.SASL != nil {
		text += " --command-config client.properties"
	}
	return text
}

// Principal is who the brokers take us for, as far as the configuration tells.
func (c Config) Principal() string {
	switch {
	case c.SASL != nil && c.SASL.Username != "":
		return c.SASL.Username
	case c.SASL == nil && (c.TLS == nil || c.TLS.CertFile == ""):
		return "ANONYMOUS"
	}
	return "<PRINCIPAL>"
}

// Fitting returns the configuration with no more replicas of a new topic than a cluster of so many brokers can hold;
// 0: not known.
func (c Config) Fitting(brokers int) Config {
	if brokers > 0 {
		c.NewTopics.ReplicationFactor = min(c.NewTopics.ReplicationFactor, brokers)
	}
	return c
}

// Collides returns the topic among the names that keeps Kafka from creating this one: in names of metrics it takes .
// and _ for the same. "": none does.
func Collides(topic string, names []string) string {
	fold := func(s string) string { return strings.ReplaceAll(s, ".", "_") }
	if i := slices.IndexFunc(names, func(n string) bool { return n != topic && fold(n) == fold(topic) }); i >= 0 {
		return names[i]
	}
	return ""
}

// creator is the configuration by which a person creates the topic: of the shape that it had, if there was one, and
// what this cluster can hold.
func (d *Driver) creator(t *topicView) Config {
	c := d.config.Fitting(len(d.view.Load().nodes))
	if n := len(t.partitions); n > 0 {
		c.NewTopics.Partitions = n
		c.NewTopics.ReplicationFactor = cmp.Or(t.replicas, c.NewTopics.ReplicationFactor)
	}
	return c
}

// topicError says why a topic is not usable, and what to do about one that does not exist.
func (d *Driver) topicError(topic string, t *topicView) error {
	if IsDeniedTopic(t.err) {
		return fmt.Errorf("topic %q: our principal may not see it, or not write to it: %w; grant it: %s", topic, t.err,
			d.config.GrantCommand(topic))
	}
	if !codes.Is(t.err, codes.UnknownTopic) {
		return fmt.Errorf("topic %q: %w", topic, t.err)
	}
	command := d.creator(t).Command(topic)
	if !t.neverSeen() {
		return fmt.Errorf("topic %q is gone: %w; create it again: %s", topic, t.err, command)
	}
	if other := Collides(topic, d.existing()); other != "" {
		return fmt.Errorf("topic %q does not exist, and Kafka does not create it beside topic %q, because it takes . and _ "+
			"in names for the same: %w; change message.topic or the rows' values", topic, other, t.err)
	}
	if !d.config.NewTopics.Create {
		return fmt.Errorf("topic %q does not exist: %w; create it: %s; or set kafka.create_topics.enabled", topic, t.err,
			command)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.creations[topic]
	if c != nil && IsDeniedCreation(c.err) {
		return fmt.Errorf("topic %q does not exist, and our principal may not create it: %w; retrying; grant it: %s; "+
			"or ask an administrator to create it: %s", topic, c.err, d.config.GrantCreateCommand(topic), command)
	}
	if c != nil && codes.Is(c.err, codes.InvalidTopic) {
		return fmt.Errorf("topic %q does not exist, and Kafka refuses to create it: %w; retrying; change message.topic or "+
			"the rows' values", topic, c.err)
	}
	if c != nil && c.err != nil {
		return fmt.Errorf("topic %q does not exist and cannot be created: %w; retrying; to create it by hand: %s", topic,
			c.err, command)
	}
	return fmt.Errorf("topic %q does not exist and is being created: %w", topic, t.err)
}

// comparedMost bounds the topics that a missing one is compared with: it is asked for with each of its events.
const comparedMost = 100

// existing are the topics that the brokers have told of, of those that were asked for; none if there are too many.
func (d *Driver) existing() (names []string) {
	known := d.view.Load().topics
	if len(known) > comparedMost {
		return nil
	}
	for name, t := range known {
		if t.err == nil {
			names = append(names, name)
		}
	}
	return names
}
