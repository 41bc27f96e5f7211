package kafka

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/codes"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// created notes which topics a driver says that it created.
type created struct {
	mu    sync.Mutex
	names []string
}

func (c *created) configure(config *Config) {
	config.NewTopics = NewTopics{Create: true, Partitions: 4, ReplicationFactor: 1}
	config.Hooks.TopicCreated = func(topic string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.names = append(c.names, topic)
	}
}

func (c *created) sorted() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(slices.Values(c.names))
}

// awaitError waits until the driver says of the topic what the words say.
func awaitError(t testing.TB, d *Driver, topic string, words ...string) {
	t.Helper()
	ctx := testContext(t)
	for {
		_, err := d.Partitions(topic)
		if err != nil && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(err.Error(), w) }) {
			return
		}
		if pause(ctx, 5*time.Millisecond) != nil {
			t.Fatalf("error of %s: got %v, want one with %q", topic, err, words)
		}
	}
}

// Breaks when a topic is not created at its first use, is asked for more than once, is created one after the other, or
// gets another shape; and when creating takes as long as it takes until events of missing topics are put aside (2 s).
func TestMissingTopicsAreCreatedOnceAtFirstUse(t *testing.T) {
	c := newFake(t)
	s := newSpy(c)
	var log created
	d := newDriver(t, c.ListenAddrs(), log.configure)
	began := time.Now()
	var want []string
	for i := range 50 {
		want = append(want, fmt.Sprintf("new-%02d", i))
		_, _ = d.Partitions(want[i])
	}
	for _, name := range want {
		awaitTopic(t, d, name)
		if n, _ := d.Partitions(name); n != 4 {
			t.Fatalf("%s: got %d partitions, want 4", name, n)
		}
	}
	if took := time.Since(began); took > refreshInterval {
		t.Errorf("took %v, want it before the next look of %v", took, refreshInterval)
	}
	wantAccepted(t, send(t, d, newBatch(d, want[7], 3, "a")), 0)
	if got := log.sorted(); !slices.Equal(got, want) {
		t.Errorf("created: got %v, want each once", got)
	}
	if got := s.count(kmsg.CreateTopics); got > 3 {
		t.Errorf("CreateTopics requests: got %d, want one for all that are missing at a time", got)
	}
}

// Breaks when a topic that was just created is asked for again while the brokers have not told each other yet. Seen to
// fail with a created topic not marked as created.
func TestCreatedTopicIsWaitedFor(t *testing.T) {
	c := newFake(t)
	s := newSpy(c)
	var log created
	d := newDriver(t, c.ListenAddrs(), log.configure)
	fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "slow", Err: kerr.UnknownTopicOrPartition,
		Count: -1})
	_, _ = d.Partitions("slow")
	awaitError(t, d, "slow", "is being created")
	for _, name := range []string{"one", "two"} { // which are created: the loop has run after the answer for the first
		_, _ = d.Partitions(name)
		awaitTopic(t, d, name)
	}
	fault.Remove()
	d.refreshSoon()
	awaitTopic(t, d, "slow")
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.creating)
	if want := []string{"one", "slow", "two"}; !slices.Equal(s.creating, want) {
		t.Errorf("asked to create: got %v, want %v", s.creating, want)
	}
}

// Breaks when a refused creation is given up, is tried in a hot loop, or does not say why and what a person can do.
func TestRefusedCreationIsSaidAndTriedAgain(t *testing.T) {
	c := newFake(t)
	s := newSpy(c)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.PolicyViolation, Count: 1})
	var log created
	d := newDriver(t, c.ListenAddrs(), log.configure)
	awaitError(t, d, "fresh", "cannot be created", "POLICY_VIOLATION",
		"kafka-topics.sh --create --topic fresh --partitions 4 --replication-factor 1 --bootstrap-server "+c.ListenAddrs()[0])
	began := time.Now()
	awaitTopic(t, d, "fresh")
	if took := time.Since(began); took < firstCreatePause/2 {
		t.Errorf("tried again after %v, want a pause of %v", took, firstCreatePause)
	}
	if got := s.count(kmsg.CreateTopics); got != 2 {
		t.Errorf("CreateTopics requests: got %d, want 2", got)
	}
}

// Breaks when a topic that we may not create has the command that creates it for a remedy alone, which the same
// principal cannot run. Seen to fail with a denial taken for any other refusal.
func TestDeniedCreationNamesTheGrant(t *testing.T) {
	for _, denied := range []*kerr.Error{kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed} {
		c := newFake(t)
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: denied, Count: -1})
		var log created
		d := newDriver(t, c.ListenAddrs(), log.configure)
		awaitError(t, d, "fresh", "our principal may not create it", denied.Message, "grant it: kafka-acls.sh --add",
			"--operation Create --operation Write", "--topic fresh",
			"or ask an administrator to create it: kafka-topics.sh --create")
	}
}

// Breaks when a topic is created although no one allowed it, or when the command that creates it is not said.
func TestMissingTopicNamesTheCommand(t *testing.T) {
	c := newFake(t)
	s := newSpy(c)
	d := newDriver(t, c.ListenAddrs(), func(c *Config) { c.NewTopics = NewTopics{Partitions: 12, ReplicationFactor: 3} })
	awaitError(t, d, "fresh", `topic "fresh" does not exist`,
		"kafka-topics.sh --create --topic fresh --partitions 12 --replication-factor 3", "kafka.create_topics.enabled")
	if _, err := d.Partitions("fresh"); !codes.Is(err, codes.UnknownTopic) {
		t.Errorf("error: got %v, want it to be that of the broker as well", err)
	}
	if got := s.count(kmsg.CreateTopics); got != 0 {
		t.Errorf("CreateTopics requests: got %d, want 0", got)
	}
}

// Breaks when a topic that someone deleted comes back behind his back.
func TestDeletedTopicIsNotCreatedAgain(t *testing.T) {
	c := newFake(t)
	s := newSpy(c)
	var log created
	d := newDriver(t, c.ListenAddrs(), log.configure)
	awaitTopic(t, d, "t")
	harness.DeleteTopic(t, c.ListenAddrs(), "t")
	d.refreshSoon()
	awaitError(t, d, "t", `topic "t" is gone`, "kafka-topics.sh --create --topic t")
	_, _ = d.Partitions("other") // which is created: the loop has run
	awaitTopic(t, d, "other")
	if got := log.sorted(); !slices.Equal(got, []string{"other"}) || s.count(kmsg.CreateTopics) != 1 {
		t.Errorf("created: got %v by %d requests, want the other topic alone", got, s.count(kmsg.CreateTopics))
	}
}

// Breaks when a real cluster takes longer than events of missing topics wait, when several relays cannot create at the
// same time, or when asking whether it could be done does it.
func TestKafkaCreatesMissingTopics(t *testing.T) {
	cluster := harness.Kafka(t)
	name := harness.Unique(t, "created")
	t.Cleanup(func() { harness.DeleteTopic(t, cluster.Addrs, name) })
	var logs [3]created
	var drivers [3]*Driver
	for i := range drivers {
		drivers[i] = newDriver(t, cluster.Addrs, logs[i].configure)
	}
	ctx := testContext(t)
	if err := drivers[0].CheckCreate(ctx, name); err != nil {
		t.Errorf("could it be created: got %v", err)
	}
	if topics, err := drivers[0].Topics(ctx, []string{name}); err != nil || !codes.Is(topics[0].Err, codes.UnknownTopic) {
		t.Fatalf("after asking: got %+v and %v, want no topic", topics, err)
	}
	began := time.Now()
	for _, d := range drivers {
		_, _ = d.Partitions(name)
	}
	for _, d := range drivers {
		awaitTopic(t, d, name)
	}
	t.Logf("usable after %v", time.Since(began))
	total := 0
	for i := range logs {
		total += len(logs[i].sorted())
	}
	if total != 1 {
		t.Errorf("drivers that say they created it: got %d, want 1", total)
	}
	wantAccepted(t, deliver(t, drivers[0], newBatch(drivers[0], name, 3, "a")), 0)
	impossible := newDriver(t, cluster.Addrs, func(c *Config) {
		c.NewTopics = NewTopics{Create: true, Partitions: 1, ReplicationFactor: 9}
	})
	if err := impossible.CheckCreate(ctx, name+"-9"); !codes.Is(err, 38) || TroubleOf(err) != sink.TopicTrouble {
		t.Errorf("with 9 replicas: got %v, want code 38", err)
	}
}

// Breaks it catches: a command that this cluster refuses, such as one for three replicas on one broker, one with other
// partitions than the deleted topic had, or one for a name that Kafka takes for that of another topic.
func TestCommandsFitTheCluster(t *testing.T) {
	c := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(3, "had.three"), kfake.SeedTopics(1, "a.b_c"))
	d := newDriver(t, c.ListenAddrs(), func(c *Config) { c.NewTopics = NewTopics{Partitions: 12, ReplicationFactor: 3} })
	awaitError(t, d, "fresh", "create it: kafka-topics.sh --create --topic fresh --partitions 12 --replication-factor 1 ")
	awaitTopic(t, d, "had.three")
	harness.DeleteTopic(t, c.ListenAddrs(), "had.three")
	d.refreshSoon()
	awaitError(t, d, "had.three", "create it again: kafka-topics.sh --create --topic had.three --partitions 3 "+
		"--replication-factor 1 ")
	awaitTopic(t, d, "a.b_c")
	awaitError(t, d, "a_b.c", `Kafka does not create it beside topic "a.b_c"`, "change message.topic")
	if _, err := d.Partitions("a_b.c"); strings.Contains(err.Error(), "kafka-topics.sh") {
		t.Errorf("error: got %v, want no command that fails", err)
	}
}

// Breaks it catches: a command that the shell takes apart, or that names another principal than the brokers know.
func TestCommandsCanBePasted(t *testing.T) {
	login := func(username string) *SASL { return &SASL{Mechanism: "PLAIN", Username: username} }
	for _, row := range []struct {
		c    Config
		want string
	}{
		{Config{}, "User:ANONYMOUS"},
		{Config{TLS: &TLS{}}, "User:ANONYMOUS"},
		{Config{TLS: &TLS{CertFile: "c.pem"}}, "'User:<PRINCIPAL>'"},
		{Config{SASL: login("ann")}, "User:ann"},
		{Config{SASL: login("ann o'hara")}, `'User:ann o'\''hara'`},
	} {
		if got := row.c.GrantCommand("a*"); !strings.Contains(got, " --allow-principal "+row.want+" --operation Write "+
			"--operation Describe --operation DescribeConfigs --operation Read --topic a --resource-pattern-type prefixed ") {
			t.Errorf("got %s, want it for %s, with each right that the relay uses", got, row.want)
		}
	}
	if got := (Config{}).GrantCommand("*"); !strings.Contains(got, " --topic '*' ") || strings.Contains(got, "prefixed") {
		t.Errorf("every topic: got %s", got)
	}
}
