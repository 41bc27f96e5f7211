package harness

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The versions of test/debezium/pom.xml.
const (
	DebeziumVersion = "3.6.1.Final"
	ConnectVersion  = "4.3.0"
)

// connectStopPatience bounds how long a worker may take to stop: it flushes its offsets, and gives its tasks 5 s.
const connectStopPatience = 30 * time.Second

// ConnectConfig is a standalone worker of Kafka Connect with one connector.
type ConnectConfig struct {
	Brokers   []string
	Worker    map[string]string // over Connect's defaults
	Connector map[string]string
	HeapMiB   int
}

// Connect is a worker of Kafka Connect with Debezium's Postgres connector among its plugins, as a child process.
type Connect struct{ *jvm }

// OutboxRouter is a Debezium connector that relays public.outbox_events by its Outbox Event Router, with Debezium's
// own defaults else. The topic has ${routedByValue} where the aggregate type stands.
func OutboxRouter(t testing.TB, database, slot, publication, topic string) map[string]string {
	t.Helper()
	at, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"name": "outbox", "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "tasks.max": "1",
		"topic.prefix": "outbox", "plugin.name": "pgoutput", "slot.name": slot, "publication.name": publication,
		"database.hostname": at.Hostname(), "database.port": at.Port(), "database.user": at.User.Username(),
		"database.password": "none", "database.dbname": strings.TrimPrefix(at.Path, "/"),
		"publication.autocreate.mode": "disabled", "snapshot.mode": "no_data", "tombstones.on.delete": "false",
		"table.include.list": "public.outbox_events",
		"transforms":         "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
		"transforms.outbox.table.field.event.id": "id", "transforms.outbox.table.field.event.key": "aggregate_id",
		"transforms.outbox.table.field.event.payload": "payload", "transforms.outbox.route.by.field": "aggregate_type",
		"transforms.outbox.route.topic.replacement": topic,
	}
}

// NewConnect writes the worker's files and, at the first call on a machine, fetches Connect and Debezium with Maven; it
// starts nothing. At the test's end the worker is killed; if the test failed, the end of its log is shown.
func NewConnect(t testing.TB, config ConnectConfig) *Connect {
	t.Helper()
	needsServers(t)
	java, err := exec.LookPath("java")
	if err != nil {
		missing(t, "Java 17 or later (Debian: openjdk-17-jre-headless)", err)
	}
	const plugins, libs = "plugins", "libs"
	artifacts, err := fromMaven(t.Context(), "debezium-"+DebeziumVersion+"-connect-"+ConnectVersion, "debezium",
		copyJars(libs), unpack(plugins))
	if err != nil {
		missing(t, "Debezium", err)
	}
	api, err := freeAddr()
	if err != nil {
		t.Fatal(err)
	}
	c := &Connect{newJVM(t, "Kafka Connect", java)}
	worker := map[string]string{
		"bootstrap.servers":            strings.Join(config.Brokers, ","),
		"listeners":                    "http://" + api,
		"plugin.path":                  filepath.Join(artifacts, plugins),
		"offset.storage.file.filename": filepath.Join(c.dir, "offsets"),
		"key.converter":                "org.apache.kafka.connect.storage.StringConverter",
		"value.converter":              "org.apache.kafka.connect.storage.StringConverter",
	}
	maps.Copy(worker, config.Worker)
	workerFile, connectorFile, logging := filepath.Join(c.dir, "worker.properties"),
		filepath.Join(c.dir, "connector.properties"), filepath.Join(c.dir, "log4j2.properties")
	err = errors.Join(
		os.WriteFile(workerFile, properties(worker), 0o600),
		os.WriteFile(connectorFile, properties(config.Connector), 0o600),
		os.WriteFile(logging, []byte(joinLines(warningsToConsole)), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	c.args = []string{
		"-Xms256m", fmt.Sprintf("-Xmx%dm", config.HeapMiB),
		// What Kafka's own start script gives to the JVM (bin/kafka-run-class.sh, KAFKA_JVM_PERFORMANCE_OPTS).
		"-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
		"-XX:+ExplicitGCInvokesConcurrent",
		"-Dlog4j2.configurationFile=" + logging,
		"-cp", filepath.Join(artifacts, libs, "*"), "org.apache.kafka.connect.cli.ConnectStandalone", workerFile,
		connectorFile,
	}
	return c
}

// Stop sends SIGTERM and waits for its end.
func (c *Connect) Stop(t testing.TB) {
	t.Helper()
	c.process.Signal(syscall.SIGTERM)
	select {
	case <-c.process.Done():
	case <-time.After(connectStopPatience):
		t.Fatalf("Kafka Connect did not stop within %v; its log ends: %s", connectStopPatience, c.process.LastWords())
	}
}
