package kafka

import (
	"context"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/codes"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/connect"
)

// Cluster describes a cluster.
type Cluster struct {
	ID         string // given when the cluster was formatted; empty when the brokers do not tell
	Controller int32  // broker id, -1 when none is known
	Brokers    []Broker
}

// Broker is one broker of a cluster.
type Broker struct {
	ID      int32
	Address string // host:port, as advertised
}

// Ping asks a broker for the cluster: it proves that one can be reached, logged in to, and spoken with.
func (d *Driver) Ping(ctx context.Context) (Cluster, error) {
	r, err := d.describeCluster(ctx, []string{})
	if err != nil {
		return Cluster{}, err
	}
	c := Cluster{ID: r.ClusterID, Controller: r.ControllerID}
	for _, b := range r.Brokers {
		c.Brokers = append(c.Brokers, Broker{b.NodeID, net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))})
	}
	slices.SortFunc(c.Brokers, func(a, b Broker) int { return int(a.ID - b.ID) })
	return c, nil
}

// CheckProducer asks for a producer id, which the driver then uses: it proves that the principal may produce with
// idempotence. It waits while a broker that has just started still loads.
func (d *Driver) CheckProducer(ctx context.Context) error {
	c, err := d.Ping(ctx)
	if err != nil {
		return err
	}
	if len(c.Brokers) == 0 {
		return fmt.Errorf("ask for a producer id: the cluster lists no brokers")
	}
	select {
	case d.asking <- struct{}{}:
		defer func() { <-d.asking }()
	case <-ctx.Done():
		return fmt.Errorf("wait for a producer id: %w", context.Cause(ctx))
	}
	_, err = d.initProducer(ctx, d.endpoint(c.Brokers[0].Address))
	return err
}

// Topic describes a topic as its cluster reports it.
type Topic struct {
	Name       string
	Err        error // why it cannot be used: it does not exist, or we are not authorized
	Partitions []Partition
	Writable   Right // whether we may write to it
	Readable   Right // whether we may read it, as after a crash

	// The configuration in force. Zero and empty when ConfigErr says why it could not be read.
	MaxMessageBytes   int // largest batch, compressed
	MinInSyncReplicas int
	CleanupPolicy     string // delete, compact, or both with a comma
	TimestampType     string // CreateTime, LogAppendTime
	// OldestMessage and NewestMessage are how far a message's timestamp may lie before and after the broker's clock, with
	// CreateTime; 0 = any.
	OldestMessage, NewestMessage time.Duration
	// Retention is how long the topic keeps a record, counted from the record's timestamp; 0 = forever.
	Retention time.Duration
	ConfigErr error
}

// Right tells whether an operation is allowed.
type Right uint8

// The answers.
const (
	RightUnknown Right = iota // it is too old to say (before Kafka 2.3)
	Granted
	Denied
)

// Bits of the authorized operations (KIP-430; org.apache.kafka.common.acl.AclOperation).
const (
	operationRead  = 1 << 3
	operationWrite = 1 << 4
)

// rightTo says whether the operation is among those that a broker told.
func rightTo(operation, told int32) Right {
	switch {
	case told == 0 || told == math.MinInt32:
		return RightUnknown
	case told&operation != 0:
		return Granted
	}
	return Denied
}

// Partition is one partition of a topic.
type Partition struct {
	ID       int32
	Leader   int32 // broker id, -1 when there is none
	Replicas []int32
	InSync   []int32
}

// ReplicationFactor is the smallest number of replicas of any partition.
func (t Topic) ReplicationFactor() int {
	least := 0
	for i, p := range t.Partitions {
		if i == 0 || len(p.Replicas) < least {
			least = len(p.Replicas)
		}
	}
	return least
}

// Compacted reports whether the topic keeps only the last record of a key, and so takes no record without one.
func (t Topic) Compacted() bool {
	return slices.Contains(strings.Split(t.CleanupPolicy, ","), "compact")
}

// Topics asks for topics by name, and answers in the same order. It does not make the driver follow them.
func (d *Driver) Topics(ctx context.Context, names []string) ([]Topic, error) {
	if len(names) == 0 {
		return nil, nil
	}
	answer, err := d.ask(ctx,
		connect.Direct{Message: &metadata.Request{TopicNames: names, IncludeTopicAuthorizedOperations: true}})
	if err != nil {
		return nil, fmt.Errorf("ask for topics: %w", err)
	}
	r := answer.(*metadata.Response)
	told := make(map[string]*metadata.ResponseTopic, len(r.Topics))
	for i := range r.Topics {
		told[r.Topics[i].Name] = &r.Topics[i]
	}
	topics := make([]Topic, len(names))
	var usable []string
	for i, name := range names {
		topics[i] = topicOf(name, told[name])
		if topics[i].Err == nil {
			usable = append(usable, name)
		}
	}
	return topics, d.describeConfigurations(ctx, topics, usable)
}

// TopicNames are the names of the cluster's topics that are not internal and that we may see, sorted.
func (d *Driver) TopicNames(ctx context.Context) ([]string, error) {
	r, err := d.describeCluster(ctx, nil)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range r.Topics {
		if t.ErrorCode == 0 && !t.IsInternal {
			names = append(names, t.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

func topicOf(name string, r *metadata.ResponseTopic) Topic {
	t := Topic{Name: name}
	if r == nil {
		t.Err = codes.ErrorOf(3, "the broker's response omits the topic")
		return t
	}
	t.Err = codes.ErrorOf(r.ErrorCode, "")
	t.Writable = rightTo(operationWrite, r.TopicAuthorizedOperations)
	t.Readable = rightTo(operationRead, r.TopicAuthorizedOperations)
	for _, p := range r.Partitions {
		t.Partitions = append(t.Partitions,
			Partition{ID: p.PartitionIndex, Leader: p.LeaderID, Replicas: p.ReplicaNodes, InSync: p.IsrNodes})
	}
	slices.SortFunc(t.Partitions, func(a, b Partition) int { return int(a.ID - b.ID) })
	return t
}

func (d *Driver) describeConfigurations(ctx context.Context, topics []Topic, usable []string) error {
	if len(usable) == 0 {
		return nil
	}
	const (
		minInSync, policy, timestamps = "min.insync.replicas", "cleanup.policy", "message.timestamp.type"
		oldest, newest                = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms" // since Kafka 3.6
		both                          = "message.timestamp.difference.max.ms"                               // until 4.0
		retention                     = "retention.ms"
	)
	configs, err := d.describeTopics(ctx, usable, configLimit, minInSync, policy, timestamps, oldest, newest, both,
		retention)
	if err != nil {
		return err
	}
	for i := range topics {
		t := &topics[i]
		if t.Err != nil {
			continue
		}
		c := configs[t.Name]
		t.ConfigErr = c.err
		t.MaxMessageBytes, _ = strconv.Atoi(c.values[configLimit])
		t.MinInSyncReplicas, _ = strconv.Atoi(c.values[minInSync])
		t.CleanupPolicy, t.TimestampType = c.values[policy], c.values[timestamps]
		t.OldestMessage = least(c.values[oldest], c.values[both])
		t.NewestMessage = least(c.values[newest], c.values[both])
		if slices.Contains(strings.Split(t.CleanupPolicy, ","), "delete") {
			t.Retention = max(least(c.values[retention]), 0) // -1 is no limit
		}
	}
	return nil
}

// least is the smaller one of two limits in milliseconds, 0 for none: unknown, or so large that it is meant to be none.
func least(limits ...string) (shortest time.Duration) {
	const none = 100 * 365 * 24 * time.Hour
	for _, text := range limits {
		ms, err := strconv.ParseInt(text, 10, 64)
		if d := time.Duration(ms) * time.Millisecond; err == nil && ms < none.Milliseconds() &&
			(shortest == 0 || d < shortest) {
			shortest = d
		}
	}
	return shortest
}

// leaderPause is the pace at which CreateTopic looks again.
const leaderPause = 20 * time.Millisecond

// CreateTopic creates a topic, unless there is one of that name, and waits until each of its partitions has a leader.
// The shape of a topic that exists is not compared.
func (d *Driver) CreateTopic(ctx context.Context, name string, partitions, replicationFactor int) error {
	for {
		err := d.createTopic(ctx, name, partitions, replicationFactor)
		if err == nil || codes.Is(err, codes.TopicExists) {
			return d.awaitLeaders(ctx, name)
		}
		if !codes.Is(err, codes.NotController) || pause(ctx, leaderPause) != nil {
			return fmt.Errorf("create topic %q: %w", name, err)
		}
	}
}

func (d *Driver) createTopic(ctx context.Context, name string, partitions, replicationFactor int) error {
	errs, err := d.requestTopics(ctx, &connect.CreateTopics{Topics: []createtopics.RequestTopic{{
		Name: name, NumPartitions: int32(partitions), ReplicationFactor: int16(replicationFactor),
	}}})
	if err != nil {
		return err
	}
	return errs[name]
}

// awaitLeaders waits until a broker knows the topic and a leader for each of its partitions.
func (d *Driver) awaitLeaders(ctx context.Context, name string) error {
	leaderless := func(p Partition) bool { return p.Leader < 0 }
	for {
		r, err := d.describeCluster(ctx, []string{name})
		if err != nil {
			return err
		}
		if len(r.Topics) == 1 {
			if t := topicOf(name, &r.Topics[0]); t.Err == nil && !slices.ContainsFunc(t.Partitions, leaderless) {
				return nil
			}
		}
		if err := pause(ctx, leaderPause); err != nil {
			return fmt.Errorf("wait for leaders of topic %q: %w", name, err)
		}
	}
}
