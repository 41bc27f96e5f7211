package harness

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What a broker's start takes most of its time for is the same at each: Java reads and checks some five thousand
// classes, and Kafka's tool for new data directories is a Java of its own that writes two files. Both are done once on
// a machine, and kept in the cache.
const (
	checkpointFile = "bootstrap.checkpoint" // the features that a new cluster begins with, as Kafka's tool writes them
	archiveFile    = "classes.jsa"          // the classes of a broker as Java has them in memory
)

// preparedKafka is the folder of the cache with both files. Its name holds what they depend on: another Java does not
// take the archive, and would start as slowly as without.
func preparedKafka(ctx context.Context, java, libs string) (dir string, err error) {
	real, err := filepath.EvalSymlinks(java)
	if err != nil {
		return "", fmt.Errorf("find Java: %w", err)
	}
	info, err := os.Stat(real)
	if err != nil {
		return "", fmt.Errorf("look at Java: %w", err)
	}
	name := fmt.Sprintf("kafka-prepared-%s-%x", kafkaVersion, info.ModTime().Unix())
	return cached(name, func(aside, fetched string) error {
		if err := os.MkdirAll(fetched, 0o755); err != nil {
			return fmt.Errorf("make a directory for what brokers start from: %w", err)
		}
		return prepareKafka(ctx, java, libs, aside, fetched)
	})
}

// prepareKafka has a broker formatted by Kafka's own tool, do something of everything, and stop: then Java writes the
// archive.
func prepareKafka(ctx context.Context, java, libs, aside, into string) (err error) {
	c := &Cluster{dir: filepath.Join(aside, "kafka")}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.configure(KafkaConfig{}, java, libs, ""); err != nil {
		return err
	}
	node := c.Nodes[0]
	if err := node.formatByTool(ctx, clusterID); err != nil {
		return err
	}
	checkpoint, err := os.ReadFile(filepath.Join(node.data(), checkpointFile))
	if err == nil {
		err = os.WriteFile(filepath.Join(into, checkpointFile), checkpoint, 0o644)
	}
	if err != nil {
		return fmt.Errorf("keep what Kafka's tool wrote: %w", err)
	}
	// Of what it cannot keep Java tells line by line.
	node.config.Java = []string{"-XX:ArchiveClassesAtExit=" + filepath.Join(into, archiveFile), "-Xlog:disable"}
	if err := node.launch(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, kafkaStartPatience)
	defer cancel()
	if err := errors.Join(node.waitReady(ctx, 1), useKafka(ctx, node.Addr)); err != nil {
		return err
	}
	process := node.current()
	process.Signal(syscall.SIGTERM)
	select {
	case <-process.Done():
	case <-ctx.Done():
		return fmt.Errorf("wait until Java has written its classes: %w", ctx.Err())
	}
	if _, err := os.Stat(filepath.Join(into, archiveFile)); err != nil {
		return fmt.Errorf("have Java write its classes: %w; it said: %s", err, process.LastWords())
	}
	return nil
}

// useKafka makes a topic, produces and consumes, so that the broker has the classes of these, too.
func useKafka(ctx context.Context, addr string) error {
	const topic = "first"
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumerGroup("first"), kgo.ConsumeTopics(topic),
		kgo.DefaultProduceTopic(topic))
	if err != nil {
		return fmt.Errorf("make a Kafka client: %w", err)
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(ctx, 1, 1, nil, topic); err != nil {
		return fmt.Errorf("make a topic: %w", err)
	}
	if err := client.ProduceSync(ctx, kgo.StringRecord("first")).FirstErr(); err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	for fetches := client.PollFetches(ctx); fetches.NumRecords() == 0; fetches = client.PollFetches(ctx) {
		if ctx.Err() != nil {
			return fmt.Errorf("consume: %w", ctx.Err())
		}
	}
	return nil
}

// format prepares the nodes' data directories for one new cluster.
func (c *Cluster) format(ctx context.Context, clusterID string) error {
	for _, node := range c.Nodes {
		format := node.formatByCopy
		if len(node.config.Scram) > 0 { // users are part of what the tool writes
			format = func(id string) error { return node.formatByTool(ctx, id) }
		}
		if err := format(clusterID); err != nil {
			return err
		}
	}
	return nil
}

// formatByCopy writes what the tool writes: nothing but ids differs from node to node.
func (n *Node) formatByCopy(clusterID string) error {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	checkpoint, err := os.ReadFile(filepath.Join(n.prepared, checkpointFile))
	if err != nil {
		return fmt.Errorf("format Kafka node %d: %w", n.ID, err)
	}
	err = errors.Join(
		os.MkdirAll(n.data(), 0o755),
		os.WriteFile(filepath.Join(n.data(), checkpointFile), checkpoint, 0o644),
		os.WriteFile(filepath.Join(n.data(), "meta.properties"), properties(map[string]string{
			"version": "1", "cluster.id": clusterID, "node.id": fmt.Sprint(n.ID),
			"directory.id": base64.RawURLEncoding.EncodeToString(id),
		}), 0o644),
	)
	if err != nil {
		return fmt.Errorf("format Kafka node %d: %w", n.ID, err)
	}
	return nil
}

// formatByTool has Kafka's own tool do it.
func (n *Node) formatByTool(ctx context.Context, clusterID string) error {
	args := append(n.options(), "-XX:TieredStopAtLevel=1", "kafka.tools.StorageTool", "format", "-t", clusterID, "-c",
		filepath.Join(n.dir, "server.properties"))
	for _, user := range n.config.Scram {
		args = append(args, "--add-scram", user)
	}
	command := exec.CommandContext(ctx, n.java, args...)
	command.WaitDelay = time.Second
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("format Kafka node %d: %w: %.2000s", n.ID, err, output)
	}
	return nil
}
