package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// FakeKafkaConfig says what to start.
type FakeKafkaConfig struct {
	Port    int              // on 127.0.0.1; 0 = a free one
	Topics  map[string]int32 // topics that exist from the start, with their number of partitions
	DataDir string           // keeps the topics over restarts; "" = in memory
}

// FakeKafka is franz-go's kfake, which speaks Kafka's protocol in this process. It is not Kafka: one node, one event
// loop, no replication, records are not validated. It serves the demo and fault tests; promises are proved on Kafka.
type FakeKafka struct {
	cluster *kfake.Cluster
}

// StartFakeKafka starts an in-process stand-in for Kafka. Topics that are not listed are not created by producing to
// them. Close it at the end.
func StartFakeKafka(c FakeKafkaConfig) (*FakeKafka, error) {
	options := []kfake.Opt{kfake.NumBrokers(1)}
	if c.Port != 0 {
		options = append(options, kfake.Ports(c.Port))
	}
	if c.DataDir != "" {
		options = append(options, kfake.DataDir(c.DataDir))
	}
	for topic, partitions := range c.Topics {
		if partitions < 1 {
			return nil, fmt.Errorf("start fake Kafka: topic %s has %d partitions, want at least 1", topic, partitions)
		}
		options = append(options, kfake.SeedTopics(partitions, topic))
	}
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		return nil, fmt.Errorf("start fake Kafka: %w", err)
	}
	return &FakeKafka{cluster: cluster}, nil
}

// Addresses lists the brokers as host:port.
func (k *FakeKafka) Addresses() []string { return k.cluster.ListenAddrs() }

// Port is the TCP port of the only broker.
func (k *FakeKafka) Port() int {
	_, text, _ := net.SplitHostPort(k.cluster.ListenAddrs()[0])
	port, _ := strconv.Atoi(text)
	return port
}

// Message is a record that [FakeKafka.Consume] read.
type Message struct {
	Topic      string
	Partition  int32
	Offset     int64
	Key, Value []byte
	Headers    []Header
}

// Header is a header of a message.
type Header struct {
	Key   string
	Value []byte
}

// Header is the value of the last header with the key, nil if there is none.
func (m Message) Header(key string) []byte {
	var value []byte
	for _, h := range m.Headers {
		if h.Key == key {
			value = h.Value
		}
	}
	return value
}

// Consume hands over each message of the topics as it arrives, from their starts, per partition in order, until ctx
// ends; that is no error.
func (k *FakeKafka) Consume(ctx context.Context, topics []string, each func(Message)) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Addresses()...), kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		return fmt.Errorf("consume from fake Kafka: %w", err)
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("consume from fake Kafka: %w", err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			m := Message{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value}
			for _, h := range r.Headers {
				m.Headers = append(m.Headers, Header{h.Key, h.Value})
			}
			each(m)
		})
	}
}

// Cluster is kfake's own handle, for faults.
func (k *FakeKafka) Cluster() *kfake.Cluster { return k.cluster }

// Close ends it and all its connections.
func (k *FakeKafka) Close() { k.cluster.Close() }
