package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/embedded/child"
)

const (
	kafkaStartPatience = 2 * time.Minute  // three brokers on two busy cores
	kafkaStopPatience  = 20 * time.Second // a controlled shutdown moves the leaders away first
)

// KafkaConfig says what cluster to start. The zero value is one broker.
type KafkaConfig struct {
	Nodes    int               // 0 = 1; from 3 on topics are replicated three times with min.insync.replicas=2
	Settings map[string]string // added to server.properties of every node
	HeapMiB  int               // 0 = 512
	// Proxy, when set, gives every node a second listener, calls Proxy with its address, and advertises to clients of that
	// listener what Proxy returns: a proxy before each broker. See Cluster.Proxied.
	Proxy func(target string) (address string, err error)
	// Listeners are further listeners of every node. See Cluster.Listeners.
	Listeners []Listener
	// Scram are users from the beginning, as kafka-storage takes them: SCRAM-SHA-512=[name=alice,password=secret].
	Scram []string
	// for throughput figures, after a warm-up; otherwise Java compiles half as much, and starts in half the time
	Fast bool
	Java []string // further arguments of each node's JVM
}

// Listener is another way into each broker, with its own rules.
type Listener struct {
	Name     string            // capitals
	Protocol string            // SSL, SASL_SSL, SASL_PLAINTEXT
	Settings map[string]string // for this listener only, such as ssl.keystore.location
}

// Cluster is a Kafka cluster.
type Cluster struct {
	Addrs   []string // of all brokers, host:port
	Proxied []string // the brokers by way of KafkaConfig.Proxy
	Nodes   []*Node  // empty when the broker was given by CDC_RELAY_TEST_KAFKA
	// Listeners are the addresses of all brokers by KafkaConfig.Listeners' names.
	Listeners map[string][]string

	dir string
}

// Node is one broker, which is a controller too.
type Node struct {
	ID   int
	Addr string // host:port

	config  KafkaConfig
	hidden  string   // address behind the proxy; "" = none
	proxied string   // address of the proxy
	further []string // addresses of config.Listeners
	dir     string
	java    string
	libs    string
	// the folder of preparedKafka; "" = none, for the one that makes it
	prepared string

	mu      sync.Mutex
	process *child.Process // nil = never started; guarded by mu
}

var sharedKafka = sync.OnceValues(func() (*Cluster, error) {
	if addr := os.Getenv("CDC_RELAY_TEST_KAFKA"); addr != "" {
		return &Cluster{Addrs: []string{addr}}, nil
	}
	c, err := startKafka(context.Background(), KafkaConfig{})
	if err == nil {
		AtEnd(c.close)
	}
	return c, err
})

// Kafka is the test process's broker, started at the first call. Tests share it: make topics with [Cluster.Topic], and
// do not stop it.
func Kafka(t testing.TB) *Cluster {
	t.Helper()
	needsServers(t)
	c, err := sharedKafka()
	if err != nil {
		missing(t, "Kafka", err)
	}
	return c
}

// NewOwnKafka starts a cluster for this test alone, whose brokers it may stop, kill and freeze.
func NewOwnKafka(t testing.TB, config KafkaConfig) *Cluster {
	t.Helper()
	needsServers(t)
	c, err := startKafka(t.Context(), config)
	if err != nil {
		missing(t, "Kafka", err)
	}
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Errorf("stop the test's Kafka: %v", err)
		}
	})
	return c
}

// KafkaCluster is a cluster of this test's own that fails over within about two seconds.
func KafkaCluster(t testing.TB, nodes int) *Cluster {
	t.Helper()
	return NewOwnKafka(t, KafkaConfig{Nodes: nodes})
}

func startKafka(ctx context.Context, config KafkaConfig) (_ *Cluster, err error) {
	java, libs, err := kafkaPrograms(ctx)
	if err != nil {
		return nil, err
	}
	prepared, err := preparedKafka(ctx, java, libs)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(dataAbove(), "cdc-relay-kafka-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for Kafka: %w", err)
	}
	c := &Cluster{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if err := c.configure(config, java, libs, prepared); err != nil {
		return nil, err
	}
	if err := c.format(ctx, clusterID); err != nil {
		return nil, err
	}
	for _, node := range c.Nodes {
		if err := node.launch(); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, kafkaStartPatience)
	defer cancel()
	return c, c.waitReady(ctx)
}

// waitReady waits until every broker answers and knows of all the others.
func (c *Cluster) waitReady(ctx context.Context) error {
	for _, node := range c.Nodes {
		if err := node.waitReady(ctx, len(c.Nodes)); err != nil {
			return err
		}
	}
	return nil
}

// Wipe kills all brokers, and starts another cluster at their addresses, which has nothing of what they had.
func (c *Cluster) Wipe(t testing.TB) {
	t.Helper()
	for _, node := range c.Nodes {
		node.Kill9()
		if err := os.RemoveAll(node.data()); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.format(t.Context(), nextClusterID); err != nil {
		t.Fatal(err)
	}
	for _, node := range c.Nodes {
		node.Start(t)
	}
}

func (c *Cluster) close() error {
	for _, node := range c.Nodes {
		node.Kill9() // no one wants the data, and a controlled shutdown takes seconds
	}
	if c.dir == "" {
		return nil
	}
	if err := os.RemoveAll(c.dir); err != nil {
		return fmt.Errorf("remove the directory of Kafka: %w", err)
	}
	return nil
}

// Admin is a client for administration, closed at the test's end.
func (c *Cluster) Admin(t testing.TB) *kadm.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs...))
	if err != nil {
		t.Fatalf("make a Kafka client: %v", err)
	}
	t.Cleanup(client.Close)
	return kadm.NewClient(client)
}

// Topic creates a topic whose name begins with the given one and is no one else's, and returns its name. The
// configuration is in Kafka's keys, such as max.message.bytes. It is deleted at the test's end.
func (c *Cluster) Topic(t testing.TB, name string, partitions int, config map[string]string) string {
	t.Helper()
	unique := Unique(t, name)
	c.CreateTopic(t, unique, partitions, config)
	return unique
}

// launch starts the process and does not wait until it is ready.
func (n *Node) launch() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process != nil && !n.process.Ended() {
		return fmt.Errorf("start Kafka node %d: it is running", n.ID)
	}
	heap := n.config.HeapMiB
	if heap == 0 {
		heap = 512
	}
	log, err := os.OpenFile(filepath.Join(n.dir, "server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start Kafka node %d: %w", n.ID, err)
	}
	args := append(n.options(), "-Xmx"+strconv.Itoa(heap)+"m", "-Xms"+strconv.Itoa(heap/2)+"m")
	if !n.config.Fast {
		args = append(args, "-XX:TieredStopAtLevel=1")
	}
	args = append(args, "kafka.Kafka", filepath.Join(n.dir, "server.properties"))
	process, err := child.Start(child.Config{
		Path:        n.java,
		Args:        args,
		Dir:         n.dir,
		Log:         log,
		DeathSignal: syscall.SIGKILL,
	})
	if err != nil {
		return errors.Join(fmt.Errorf("start Kafka node %d: %w", n.ID, err), log.Close())
	}
	n.process = process
	go func() {
		<-process.Done()
		_ = log.Close()
	}()
	return nil
}

func (n *Node) waitReady(ctx context.Context, brokers int) error {
	process := n.current()
	client, err := kgo.NewClient(kgo.SeedBrokers(n.Addr), kgo.DialTimeout(time.Second))
	if err != nil {
		return fmt.Errorf("make a Kafka client: %w", err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		var err error
		if conn, dialErr := net.DialTimeout("tcp", n.Addr, time.Second); dialErr != nil {
			err = dialErr // asked first, because the client backs off for seconds
		} else {
			_ = conn.Close()
			asked, cancel := context.WithTimeout(ctx, 5*time.Second)
			var list kadm.BrokerDetails
			list, err = admin.ListBrokers(asked)
			cancel()
			if err == nil && len(list) >= brokers {
				return nil
			}
			if err == nil {
				err = fmt.Errorf("it knows %d brokers of %d", len(list), brokers)
			}
		}
		select {
		case <-process.Done():
			return fmt.Errorf("Kafka node %d ended with code %d: %s", n.ID, process.ExitCode(), process.LastWords())
		case <-ctx.Done():
			return fmt.Errorf("wait for Kafka node %d: %w: %w; its log ends: %s", n.ID, ctx.Err(), err, process.LastWords())
		case <-poll.C:
		}
	}
}

func (n *Node) current() *child.Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process
}

// PID is the broker's process id, 0 when it does not run.
func (n *Node) PID() int {
	if process := n.current(); process != nil && !process.Ended() {
		return process.PID()
	}
	return 0
}

// Start starts the broker again, on the same address and data, and waits until it answers.
func (n *Node) Start(t testing.TB) {
	t.Helper()
	if err := n.launch(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), kafkaStartPatience)
	defer cancel()
	if err := n.waitReady(ctx, 1); err != nil {
		t.Fatal(err)
	}
}

// Stop does a controlled shutdown and waits for its end.
func (n *Node) Stop(t testing.TB) {
	t.Helper()
	process := n.current()
	process.Signal(syscall.SIGTERM)
	process.Thaw()
	select {
	case <-process.Done():
	case <-time.After(kafkaStopPatience):
		process.Kill()
		t.Fatalf("Kafka node %d did not stop within %v; its log ends: %s", n.ID, kafkaStopPatience, process.LastWords())
	}
}

// Kill9 kills the broker and waits for its end.
func (n *Node) Kill9() {
	if process := n.current(); process != nil {
		process.Kill()
	}
}

// Freeze stops the broker with SIGSTOP: its connections stay open and go silent.
func (n *Node) Freeze() { n.current().Freeze() }

// Thaw lets a frozen broker go on.
func (n *Node) Thaw() { n.current().Thaw() }

// freeAddr is an address on the loopback interface that no one listens on.
func freeAddr() (string, error) {
	port, err := embedded.FreePort()
	if err != nil {
		return "", err
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), nil
}

func joinLines(lines []string) string { return strings.Join(lines, "\n") + "\n" }
