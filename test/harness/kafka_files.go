package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// kafkaVersion must be that of test/kafka/pom.xml.
const kafkaVersion = "4.3.0"

// kafkaPrograms finds Java and the broker's jars.
func kafkaPrograms(ctx context.Context) (java, classpath string, err error) {
	java, err = exec.LookPath("java")
	if err != nil {
		return "", "", fmt.Errorf("find Java 17 or later (Debian: openjdk-17-jre-headless), or set CDC_RELAY_TEST_KAFKA: %w",
			err)
	}
	jars, err := fromMaven(ctx, "kafka-"+kafkaVersion, "kafka", copyJars(""))
	if err != nil {
		return "", "", fmt.Errorf("get Kafka %s, or set CDC_RELAY_TEST_KAFKA: %w", kafkaVersion, err)
	}
	return java, filepath.Join(jars, "*"), nil
}

// KafkaPrograms are Java and the class path of Kafka's own programs and clients; without them the test is skipped, or
// fails in CI.
func KafkaPrograms(t testing.TB) (java, classpath string) {
	t.Helper()
	java, classpath, err := kafkaPrograms(t.Context())
	if err != nil {
		missing(t, "Kafka's own clients", err)
	}
	return java, classpath
}

// moduleDir is the root of the repository.
func moduleDir() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// configure chooses addresses and writes each node's files.
func (c *Cluster) configure(config KafkaConfig, java, classpath, prepared string) error {
	count := max(config.Nodes, 1)
	controllers := make([]string, count)
	voters := make([]string, count)
	for n := range count {
		broker, err := freeAddr()
		if err != nil {
			return err
		}
		if controllers[n], err = freeAddr(); err != nil {
			return err
		}
		c.Addrs = append(c.Addrs, broker)
		voters[n] = fmt.Sprintf("%d@%s", n+1, controllers[n])
	}
	for n := range count {
		node := &Node{
			ID: n + 1, Addr: c.Addrs[n], config: config, java: java, libs: classpath, prepared: prepared,
			dir: filepath.Join(c.dir, fmt.Sprintf("node-%d", n+1)),
		}
		if config.Proxy != nil {
			if err := c.addProxy(node); err != nil {
				return err
			}
		}
		if err := c.addListeners(node); err != nil {
			return err
		}
		if err := node.writeFiles(count, controllers[n], strings.Join(voters, ",")); err != nil {
			return fmt.Errorf("configure Kafka: %w", err)
		}
		c.Nodes = append(c.Nodes, node)
	}
	return nil
}

// addProxy makes a second listener that is reached by way of the proxy only.
func (c *Cluster) addProxy(node *Node) error {
	hidden, err := freeAddr()
	if err != nil {
		return err
	}
	address, err := node.config.Proxy(hidden)
	if err != nil {
		return fmt.Errorf("put a proxy before Kafka node %d: %w", node.ID, err)
	}
	node.hidden, node.proxied = hidden, address
	c.Proxied = append(c.Proxied, address)
	return nil
}

// addListeners chooses the addresses of further listeners.
func (c *Cluster) addListeners(node *Node) error {
	for _, l := range node.config.Listeners {
		address, err := freeAddr()
		if err != nil {
			return err
		}
		node.further = append(node.further, address)
		if c.Listeners == nil {
			c.Listeners = make(map[string][]string)
		}
		c.Listeners[l.Name] = append(c.Listeners[l.Name], address)
	}
	return nil
}

// list adds the node's second and further listeners to its settings.
func (n *Node) list(settings map[string]string) {
	add := func(name, protocol, listens, advertised string) {
		settings["listeners"] += "," + name + "://" + listens
		settings["advertised.listeners"] += "," + name + "://" + advertised
		settings["listener.security.protocol.map"] += "," + name + ":" + protocol
		settings["inter.broker.listener.name"] = "PLAINTEXT"
	}
	settings["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
	if n.hidden != "" {
		add("PROXIED", "PLAINTEXT", n.hidden, n.proxied)
	}
	for i, l := range n.config.Listeners {
		add(l.Name, l.Protocol, n.further[i], n.further[i])
		for key, value := range l.Settings {
			settings["listener.name."+strings.ToLower(l.Name)+"."+key] = value
		}
	}
}

// warningsToConsole is a configuration of log4j2.
var warningsToConsole = []string{
	"rootLogger.level=WARN",
	"rootLogger.appenderRefs=out",
	"rootLogger.appenderRef.out.ref=out",
	"appender.out.type=Console",
	"appender.out.name=out",
	"appender.out.layout.type=PatternLayout",
	"appender.out.layout.pattern=%d %p %c{1}: %m%n",
}

// properties is a file of Java's.
func properties(settings map[string]string) []byte {
	lines := make([]string, 0, len(settings))
	for key, value := range settings {
		lines = append(lines, key+"="+value)
	}
	slices.Sort(lines)
	return []byte(joinLines(lines))
}

// data is the directory of the node's logs.
func (n *Node) data() string { return filepath.Join(n.dir, "data") }

// options are the JVM's arguments before the class, for whatever program of Kafka's.
func (n *Node) options() []string {
	options := slices.Concat(n.config.Java, []string{
		"-XX:+UseSerialGC", "-Dlog4j2.configurationFile=" + filepath.Join(n.dir, "log4j2.properties"), "-cp", n.libs,
	})
	if n.prepared != "" {
		options = append(options, "-XX:SharedArchiveFile="+filepath.Join(n.prepared, archiveFile))
	}
	return options
}

func (n *Node) writeFiles(nodes int, controller, voters string) error {
	replicas, insync := "1", "1"
	if nodes >= 3 {
		replicas, insync = "3", "2"
	}
	settings := map[string]string{
		"process.roles":                                    "broker,controller",
		"node.id":                                          fmt.Sprint(n.ID),
		"controller.quorum.voters":                         voters,
		"listeners":                                        "PLAINTEXT://" + n.Addr + ",CONTROLLER://" + controller,
		"advertised.listeners":                             "PLAINTEXT://" + n.Addr,
		"controller.listener.names":                        "CONTROLLER",
		"log.dirs":                                         n.data(),
		"auto.create.topics.enable":                        "false",
		"offsets.topic.replication.factor":                 replicas,
		"offsets.topic.num.partitions":                     "1",
		"transaction.state.log.replication.factor":         replicas,
		"transaction.state.log.min.isr":                    insync,
		"transaction.state.log.num.partitions":             "1",
		"share.coordinator.state.topic.replication.factor": replicas,
		"share.coordinator.state.topic.min.isr":            insync,
		"default.replication.factor":                       replicas,
		"min.insync.replicas":                              insync,
		"group.initial.rebalance.delay.ms":                 "0",
		"broker.session.timeout.ms":                        "2000", // a dead leader is replaced after 2 s, not 9 s
		"broker.heartbeat.interval.ms":                     "500",
		"log.retention.ms":                                 "-1", // some tests' records are years old
		"num.network.threads":                              "2",
		"num.io.threads":                                   "4",
		"background.threads":                               "2",
		// Kafka makes the two index files of a segment 10 MiB long and maps them. Where Linux reads much ahead (8 MiB in
		// read_ahead_kb here), the first record of a partition has all of it zeroed: 37 ms of a processor, that of a
		// thousand records. A segment ends when its index is full: after 128 MiB.
		"log.index.size.max.bytes": "262144",
		// 128 MB by default, and nothing here is compacted for long
		"log.cleaner.dedupe.buffer.size": "8388608",
	}
	n.list(settings)
	for key, value := range n.config.Settings {
		settings[key] = value
	}
	return errors.Join(
		os.MkdirAll(n.dir, 0o755),
		os.WriteFile(filepath.Join(n.dir, "server.properties"), properties(settings), 0o644),
		os.WriteFile(filepath.Join(n.dir, "log4j2.properties"), []byte(joinLines(warningsToConsole)), 0o644),
	)
}

// The ids of clusters: 16 bytes in base64, as random-uuid prints them. A wiped one has the second.
const clusterID, nextClusterID = "Y2RjLXJlbGF5LXRlc3RzMQ", "Y2RjLXJlbGF5LXRlc3RzMg"
