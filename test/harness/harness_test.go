package harness_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// Breaks it catches: a slot, a prepared transaction or a session that keeps a test's database from being dropped.
func TestPostgresDropsWhatATestLeaves(t *testing.T) {
	var kept *harness.PG
	t.Run("leaves", func(t *testing.T) {
		p := harness.Postgres(t)
		p.Exec(t, "CREATE TABLE t (n int)")
		p.Exec(t, "SELECT pg_create_logical_replication_slot('"+p.Database+"', 'pgoutput')")
		p.Exec(t, "BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'left by "+p.Database+"'")
		p.Connect(t)
		kept = p
	})
	p := harness.Postgres(t)
	if p.Database == kept.Database {
		t.Fatalf("two tests got the database %s", p.Database)
	}
	for what, sql := range map[string]string{
		"databases":             "SELECT count(*) FROM pg_database WHERE datname = '" + kept.Database + "'",
		"slots":                 "SELECT count(*) FROM pg_replication_slots WHERE slot_name = '" + kept.Database + "'",
		"prepared transactions": "SELECT count(*) FROM pg_prepared_xacts WHERE database = '" + kept.Database + "'",
	} {
		if got := p.Query(t, sql); got != "0" {
			t.Errorf("%s left by an earlier test: got %s, want 0", what, got)
		}
	}
}

// Breaks it catches: an own server that is the shared one. Seen to fail with the shared one given out.
func TestOwnPostgresCanBeKilledWithoutHarmToOthers(t *testing.T) {
	harness.Full(t)
	common, own := harness.Postgres(t), harness.NewOwnPostgres(t, embedded.PostgresConfig{})
	own.Exec(t, "CREATE TABLE kept AS SELECT 1 AS n")
	if err := own.Server.Kill9(); err != nil {
		t.Fatal(err)
	}
	if got := common.Query(t, "SELECT 1"); got != "1" {
		t.Errorf("the shared server after the own one was killed: got %q, want 1", got)
	}
	if err := own.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := own.Query(t, "SELECT n FROM kept"); got != "1" {
		t.Errorf("row after the crash: got %q, want 1", got)
	}
}

func produce(t *testing.T, c *harness.Cluster, topic string, values ...string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, value := range values {
		if err := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatalf("produce: %v", err)
		}
	}
}

// Breaks it catches: a broker that is not ready when it is handed out, topics shared by tests, a topic configuration
// that is lost. Seen to fail with one topic for a name, and with the configuration not handed on.
func TestKafkaTakesRecordsAtOnce(t *testing.T) {
	c := harness.Kafka(t)
	topic, other := c.Topic(t, "orders", 3, map[string]string{"max.message.bytes": "2000"}), c.Topic(t, "orders", 3, nil)
	if topic == other {
		t.Fatalf("two topics have the name %s", topic)
	}
	produce(t, c, topic, "a", "b")
	ends, err := c.Admin(t).ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	if end, _ := ends.Lookup(topic, 0); end.Offset != 2 {
		t.Errorf("end offset: got %d, want 2", end.Offset)
	}
	configs, err := c.Admin(t).DescribeTopicConfigs(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	if got := setting(configs[0], "max.message.bytes"); got != "2000" {
		t.Errorf("max.message.bytes: got %s, want 2000", got)
	}
}

// setting is a value of a topic's or a broker's configuration, "" if it has no such key.
func setting(c kadm.ResourceConfig, key string) string {
	for _, config := range c.Configs {
		if config.Key == key {
			return config.MaybeValue()
		}
	}
	return ""
}

// Breaks it catches: an end that is not waited for, another port or empty data after a restart, a Freeze without
// effect. Seen to fail with the logs removed at a start, and with a Freeze that does nothing.
func TestOwnKafkaSurvivesEveryKindOfEnd(t *testing.T) {
	harness.Full(t)
	c := harness.NewOwnKafka(t, harness.KafkaConfig{})
	topic, node := c.Topic(t, "orders", 1, nil), c.Nodes[0]
	ends := []struct {
		name string
		end  func()
	}{{"Stop", func() { node.Stop(t) }}, {"Kill9", node.Kill9}, {"Kill9 while frozen", func() {
		node.Freeze()
		awaitFrozen(t, node)
		node.Kill9()
	}}}
	for n, e := range ends {
		produce(t, c, topic, e.name)
		e.end()
		if got := node.PID(); got != 0 {
			t.Errorf("process id after %s: got %d, want 0", e.name, got)
		}
		began := time.Now()
		node.Start(t)
		t.Logf("ready %v after %s", time.Since(began).Round(time.Millisecond), e.name)
		offsets, err := c.Admin(t).ListEndOffsets(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		if end, _ := offsets.Lookup(topic, 0); end.Offset != int64(n+1) {
			t.Errorf("end offset after %s: got %d, want %d", e.name, end.Offset, n+1)
		}
	}
}

// awaitFrozen waits until the kernel says that the broker's process is stopped (proc(5)).
func awaitFrozen(t *testing.T, node *harness.Node) {
	t.Helper()
	harness.Eventually(t, 30*time.Second, "the broker is frozen", func(context.Context) string {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", node.PID()))
		if err != nil {
			return err.Error()
		}
		if !strings.Contains(string(stat), ") T ") {
			return string(stat)
		}
		return ""
	})
}

// Breaks it catches: a cluster without a second leader when the first one dies, topics that are not replicated, a
// fail-over that takes the default of nine seconds. Seen to fail with one replica, and with the default time.
func TestClusterOutlivesItsLeader(t *testing.T) {
	harness.Full(t)
	began := time.Now()
	c := harness.KafkaCluster(t, 3)
	t.Logf("ready %v after the call", time.Since(began).Round(time.Millisecond))
	topic := c.Topic(t, "orders", 1, nil)
	produce(t, c, topic, "before")
	listed, err := c.Admin(t).ListTopics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	partition := listed[topic].Partitions[0]
	if len(partition.Replicas) != 3 {
		t.Fatalf("replicas: got %v, want 3", partition.Replicas)
	}
	began = time.Now()
	c.Nodes[partition.Leader-1].Kill9()
	produce(t, c, topic, "after")
	t.Logf("produced %v after the leader was killed", time.Since(began).Round(time.Millisecond))
	c.Nodes[partition.Leader-1].Start(t)
	// How long the fail-over took says as much about a busy machine as about the cluster; what it waits for is a setting.
	configs, err := c.Admin(t).DescribeBrokerConfigs(t.Context(), partition.Leader)
	if err != nil {
		t.Fatal(err)
	}
	if got := setting(configs[0], "broker.session.timeout.ms"); got != "2000" {
		t.Errorf("ms without a sign of life after which a broker counts as dead: got %s, want 2000", got)
	}
}
