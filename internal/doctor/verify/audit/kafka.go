package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/brokers"
)

const (
	readPatience = 10 * time.Second // without a record although the log goes on: it is said, and the rest left
	fetchBytes   = 4 << 20
	fetchWait    = 250 * time.Millisecond
	// leaderPatience is longer than the client keeps what it knows of the cluster, 6 s.
	leaderPatience = 20 * time.Second
)

// onKafka asks Kafka.
type onKafka struct {
	client *kafkago.Client
	// settled is when a broker has had the time to hear of all topics that were there before: until then it is not
	// believed that there is none.
	settled time.Time
}

func newOnKafka(cfg config.Config) (onKafka, error) {
	_, client, err := brokers.KafkaClients(cfg)
	return onKafka{client, time.Now().Add(leaderPatience)}, err
}

func (k onKafka) close() { brokers.CloseIdle(k.client) }

// find implements source.
func (k onKafka) find(ctx context.Context, topic string) (found foundTopic, err error) {
	told, err := k.topic(ctx, topic)
	if errors.Is(err, kafkago.UnknownTopicOrPartition) {
		return found, nil
	}
	if err != nil {
		return found, err
	}
	for _, p := range told.Partitions {
		found.ends = append(found.ends, &partitionEnd{topic: topic, partition: int(p.PartitionIndex), unread: -1})
	}
	slices.SortFunc(found.ends, func(a, b *partitionEnd) int { return a.partition - b.partition })
	if err := k.begins(ctx, topic, found.ends); err != nil {
		return found, err
	}
	for _, p := range found.ends {
		p.next = p.first
	}
	found.thins, found.note, err = k.compacted(ctx, topic)
	return found, err
}

// begins implements source.
func (k onKafka) begins(ctx context.Context, topic string, ends []*partitionEnd) error {
	return k.ask(ctx, topic, ends, kafkago.FirstOffsetOf, func(p *partitionEnd, o kafkago.PartitionOffsets) {
		p.first = o.FirstOffset
	})
}

// ends implements source.
func (k onKafka) ends(ctx context.Context, topic string, ends []*partitionEnd) error {
	return k.ask(ctx, topic, ends, kafkago.LastOffsetOf, func(p *partitionEnd, o kafkago.PartitionOffsets) {
		p.end = o.LastOffset
	})
}

// compacted reports whether the topic may have removed a record because its key has a newer one. A broker that does not
// tell is taken to have: what is missing is then not called lost.
func (k onKafka) compacted(ctx context.Context, topic string) (compacts bool, note string, err error) {
	answer, err := k.client.DescribeConfigs(ctx,
		&kafkago.DescribeConfigsRequest{Resources: []kafkago.DescribeConfigRequestResource{
			{ResourceType: kafkago.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{"cleanup.policy"}},
		}})
	if err != nil {
		return false, "", fmt.Errorf("ask for the configuration of topic %s: %w", topic, err)
	}
	for _, resource := range answer.Resources {
		for _, entry := range resource.ConfigEntries {
			if resource.Error == nil && entry.ConfigName == "cleanup.policy" {
				return strings.Contains(entry.ConfigValue, "compact"), "", nil
			}
		}
	}
	return true, fmt.Sprintf("topic %s: the broker does not tell its cleanup.policy (the principal needs "+
		"DescribeConfigs): missing records count as removed by it", topic), nil
}

// ask asks for offsets of all partitions, again and again while one has no leader that knows of it: so it is just after
// a topic was made or a leader moved.
func (k onKafka) ask(ctx context.Context, topic string, ends []*partitionEnd,
	which func(int) kafkago.OffsetRequest, take func(*partitionEnd, kafkago.PartitionOffsets)) error {
	for deadline := time.Now().Add(leaderPatience); ; {
		err := k.askOnce(ctx, topic, ends, which, take)
		code, ok := errors.AsType[kafkago.Error](err)
		if !ok || !slices.Contains(leaderless, code) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// leaderless are the answers about a partition whose leader is another one, or none, or does not know of it yet.
var leaderless = []kafkago.Error{
	kafkago.UnknownTopicOrPartition, kafkago.LeaderNotAvailable, kafkago.NotLeaderForPartition,
	kafkago.ReplicaNotAvailable, kafkago.FencedLeaderEpoch,
	kafkago.UnknownLeaderEpoch, kafkago.OffsetNotAvailable,
}

func (k onKafka) askOnce(ctx context.Context, topic string, ends []*partitionEnd,
	which func(int) kafkago.OffsetRequest, take func(*partitionEnd, kafkago.PartitionOffsets)) error {
	var requests []kafkago.OffsetRequest
	for _, p := range ends {
		requests = append(requests, which(p.partition))
	}
	answer, err := k.client.ListOffsets(ctx,
		&kafkago.ListOffsetsRequest{Topics: map[string][]kafkago.OffsetRequest{topic: requests}})
	if err != nil {
		return fmt.Errorf("ask for the offsets of topic %s: %w", topic, err)
	}
	for _, o := range answer.Topics[topic] {
		if o.Error != nil {
			return fmt.Errorf("ask for the offsets of topic %s, partition %d: %w", topic, o.Partition, o.Error)
		}
		for _, p := range ends {
			if p.partition == o.Partition {
				take(p, o)
			}
		}
	}
	return nil
}
