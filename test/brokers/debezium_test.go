package brokers_test

import (
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cdc-relay/cdc-relay/embedded"
	"github.com/cdc-relay/cdc-relay/embedded/child"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// debezium is a Debezium Server, unpacked, tuned for latency, with its position noted each second. It comes with sinks
// for three of the brokers.
func debezium(t *testing.T, dir, sink, broker, slot, publication string, pg *harness.PG, topic string) *loopBeside {
	t.Helper()
	host, port, err := net.SplitHostPort(broker)
	if err != nil {
		t.Fatal(err)
	}
	properties := map[string]map[string]string{
		"nats": {"debezium.sink.type": "nats-jetstream", "debezium.sink.nats-jetstream.url": "nats://" + broker,
			"debezium.sink.nats-jetstream.create-stream": "false"},
		"redis-stream": {"debezium.sink.type": "redis", "debezium.sink.redis.address": broker,
			"debezium.sink.redis.message.format": "extended"},
		"rabbitmq": {"debezium.sink.type": "rabbitmq", "debezium.sink.rabbitmq.connection.host": host,
			"debezium.sink.rabbitmq.connection.port": port, "debezium.sink.rabbitmq.connection.username": "guest",
			"debezium.sink.rabbitmq.connection.password": "guest", "debezium.sink.rabbitmq.exchange": topic,
			"debezium.sink.rabbitmq.routingKey": "order", "debezium.sink.rabbitmq.deliveryMode": "2"},
	}[sink]
	router := harness.OutboxRouter(t, pg.URL, slot, publication, strings.TrimSuffix(topic, "order")+"${routedByValue}")
	for key, value := range router {
		if transform, is := strings.CutPrefix(key, "transforms"); is {
			properties["debezium.transforms"+transform] = value
		} else {
			properties["debezium.source."+key] = value
		}
	}
	web, err := embedded.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	maps.Copy(properties, map[string]string{
		"debezium.source.offset.storage":               "org.apache.kafka.connect.storage.FileOffsetBackingStore",
		"debezium.source.offset.storage.file.filename": filepath.Join(work, "offsets"),
		"debezium.source.offset.flush.interval.ms":     "1000",
		"debezium.source.poll.interval.ms":             "2",
		"debezium.format.key":                          "simplestring",
		"debezium.format.value":                        "simplestring",
		"quarkus.http.port":                            fmt.Sprint(web),
	})
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		lines = append(lines, key+"="+properties[key]+"\n")
	}
	if err := os.Mkdir(filepath.Join(work, "config"), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(work, "config", "application.properties")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	runner, err := filepath.Glob(filepath.Join(dir, "debezium-server-*runner.jar"))
	if err != nil || len(runner) != 1 {
		t.Fatalf("no Debezium Server in %s: %v", dir, err)
	}
	java, err := exec.LookPath("java")
	if err != nil {
		t.Fatal(err)
	}
	return &loopBeside{t: t, config: child.Config{Path: java, Dir: work, DeathSignal: syscall.SIGKILL, Args: []string{"-Xmx1g",
		"-cp", strings.Join([]string{runner[0], "config", filepath.Join(dir, "lib", "*")}, ":"), "io.debezium.server.Main"}}}
}
