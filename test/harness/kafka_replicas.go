package harness

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// replicaPatience bounds how long a cluster of this machine may take to elect leaders, or to bring a follower up to
// date.
const replicaPatience = time.Minute

// wholeStopPatience is for how long brokers that shut down together may wait for each other.
const wholeStopPatience = 5 * time.Second

// Node is the broker with the id, which Kafka gives from 1 on.
func (c *Cluster) Node(t testing.TB, id int32) *Node {
	t.Helper()
	for _, node := range c.Nodes {
		if node.ID == int(id) {
			return node
		}
	}
	t.Fatalf("there is no Kafka node %d", id)
	return nil
}

// Start starts every broker that does not run and waits until all answer. Of three that were stopped one alone would
// wait for the others.
func (c *Cluster) Start(t testing.TB) {
	t.Helper()
	for _, node := range c.Nodes {
		if node.PID() != 0 {
			continue
		}
		if err := node.launch(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), kafkaStartPatience)
	defer cancel()
	if err := c.waitReady(ctx); err != nil {
		t.Fatal(err)
	}
}

// Kill9 kills every broker at once.
func (c *Cluster) Kill9() {
	for _, node := range c.Nodes {
		node.current().Freeze() // so that none notices that another is gone
	}
	for _, node := range c.Nodes {
		node.Kill9()
	}
}

// Stop asks every broker at once to shut down, and kills those that do not: the last ones of a cluster miss the others.
func (c *Cluster) Stop() {
	limit := time.NewTimer(wholeStopPatience)
	defer limit.Stop()
	for _, node := range c.Nodes {
		node.current().Signal(syscall.SIGTERM)
	}
	for _, node := range c.Nodes {
		select {
		case <-node.current().Done():
		case <-limit.C:
			c.Kill9()
			return
		}
	}
}

// Leaders are the ids of the brokers that lead the topic's partitions, by partition; -1 where no one does.
func (c *Cluster) Leaders(t testing.TB, topic string) []int32 {
	t.Helper()
	var leaders []int32
	c.eventually(t, "the leaders of "+topic, func(ctx context.Context, admin *kadm.Client) string {
		partitions, err := partitionsOf(ctx, admin, topic)
		if err != nil {
			return err.Error()
		}
		leaders = leaders[:0]
		for _, p := range partitions {
			leaders = append(leaders, p.Leader)
		}
		return ""
	})
	return leaders
}

// BusiestLeader is the broker that leads most of the topic's partitions.
func (c *Cluster) BusiestLeader(t testing.TB, topic string) *Node {
	t.Helper()
	counts := make(map[int32]int)
	busiest := int32(-1)
	for _, id := range c.Leaders(t, topic) {
		if id < 0 {
			continue
		}
		if counts[id]++; busiest < 0 || counts[id] > counts[busiest] {
			busiest = id
		}
	}
	return c.Node(t, busiest)
}

// AwaitInSync waits until every partition of the topic has a leader and all its replicas are in sync: until the next
// broker may die.
func (c *Cluster) AwaitInSync(t testing.TB, topic string) {
	t.Helper()
	c.eventually(t, "replicas in sync", func(ctx context.Context, admin *kadm.Client) string {
		partitions, err := partitionsOf(ctx, admin, topic)
		if err != nil {
			return err.Error()
		}
		for _, p := range partitions {
			if p.Leader < 0 || len(p.ISR) < len(p.Replicas) {
				return fmt.Sprintf("partition %d: leader %d, replicas %v, in sync %v", p.Partition, p.Leader, p.Replicas, p.ISR)
			}
		}
		return ""
	})
}

// AwaitWithout waits until the broker is neither leader nor in sync anywhere in the topic.
func (c *Cluster) AwaitWithout(t testing.TB, topic string, node *Node) {
	t.Helper()
	c.eventually(t, fmt.Sprintf("the cluster does without node %d", node.ID),
		func(ctx context.Context, admin *kadm.Client) string {
			partitions, err := partitionsOf(ctx, admin, topic)
			if err != nil {
				return err.Error()
			}
			for _, p := range partitions {
				if slices.Contains(p.ISR, int32(node.ID)) || p.Leader == int32(node.ID) {
					return fmt.Sprintf("partition %d: leader %d, in sync %v", p.Partition, p.Leader, p.ISR)
				}
			}
			return ""
		})
}

// AwaitGone waits until no broker knows the topic, which was deleted: the controller says so before they do, and what a
// broker takes until it knows is deleted with the topic.
func (c *Cluster) AwaitGone(t testing.TB, topic string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs...))
	if err != nil {
		t.Fatalf("make a Kafka client: %v", err)
	}
	defer client.Close()
	ask := kmsg.NewPtrMetadataRequest()
	ask.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
	Eventually(t, replicaPatience, "no broker knows "+topic, func(ctx context.Context) string {
		for _, node := range c.Nodes {
			answer, err := client.Broker(node.ID).RetriableRequest(ctx, ask)
			if err != nil {
				return err.Error()
			}
			if code := answer.(*kmsg.MetadataResponse).Topics[0].ErrorCode; code != kerr.UnknownTopicOrPartition.Code {
				return fmt.Sprintf("node %d answers with code %d", node.ID, code)
			}
		}
		return ""
	})
}

// MoveLeader gives the partition another leader, in good order, and waits until it has it.
func (c *Cluster) MoveLeader(t testing.TB, topic string, partition int32) {
	t.Helper()
	var wanted int32
	c.eventually(t, fmt.Sprintf("a new leader of %s/%d", topic, partition),
		func(ctx context.Context, admin *kadm.Client) string {
			partitions, err := partitionsOf(ctx, admin, topic)
			if err != nil {
				return err.Error()
			}
			p := partitions[partition]
			if wanted != 0 && p.Leader == wanted {
				return ""
			}
			var reorder kadm.AlterPartitionAssignmentsReq
			next := append(slices.Clone(p.Replicas[1:]), p.Replicas[0])
			if wanted == 0 {
				wanted = next[0]
				if wanted == p.Leader { // the leader was not the preferred one
					next = append(next[1:], next[0])
					wanted = next[0]
				}
				reorder.Assign(topic, partition, next)
				if _, err := admin.AlterPartitionAssignments(ctx, reorder); err != nil {
					t.Fatalf("order the replicas of %s/%d: %v", topic, partition, err)
				}
			}
			if _, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica,
				kadm.TopicsSet{topic: {partition: {}}}); err != nil {
				return err.Error()
			}
			return fmt.Sprintf("node %d leads, not %d", p.Leader, wanted)
		})
}

// CreateTopicOn creates a topic with the given brokers as the replicas of each partition, the first of them its
// preferred leader. It is deleted at the test's end.
func (c *Cluster) CreateTopicOn(t testing.TB, name string, replicas [][]int32) (topic string) {
	t.Helper()
	topic = Unique(t, name)
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs...))
	if err != nil {
		t.Fatalf("make a Kafka client: %v", err)
	}
	defer client.Close()
	request, asked := kmsg.NewPtrCreateTopicsRequest(), kmsg.NewCreateTopicsRequestTopic()
	asked.Topic, asked.NumPartitions, asked.ReplicationFactor = topic, -1, -1
	for n, ids := range replicas {
		asked.ReplicaAssignment = append(asked.ReplicaAssignment,
			kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: int32(n), Replicas: ids})
	}
	request.Topics = append(request.Topics, asked)
	answer, err := request.RequestWith(t.Context(), client)
	if err == nil {
		err = kerr.ErrorForCode(answer.Topics[0].ErrorCode)
	}
	if err != nil {
		t.Fatalf("create topic %s on %v: %v", topic, replicas, err)
	}
	t.Cleanup(func() { DeleteTopic(t, c.Addrs, topic) })
	c.AwaitInSync(t, topic)
	return topic
}

func (c *Cluster) eventually(t testing.TB, what string, condition func(context.Context, *kadm.Client) string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs...), kgo.DialTimeout(time.Second),
		kgo.RetryTimeout(2*time.Second),
		kgo.MetadataMinAge(20*time.Millisecond)) // by default what a broker said is believed for 5 s
	if err != nil {
		t.Fatalf("make a Kafka client: %v", err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	Eventually(t, replicaPatience, what, func(ctx context.Context) string {
		asked, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return condition(asked, admin)
	})
}

// partitionsOf are the topic's partitions in order.
func partitionsOf(ctx context.Context, admin *kadm.Client, topic string) ([]kadm.PartitionDetail, error) {
	topics, err := admin.ListTopics(ctx, topic)
	if err == nil {
		err = topics.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", topic, err)
	}
	partitions := topics[topic].Partitions.Sorted()
	if len(partitions) == 0 {
		return nil, fmt.Errorf("ask for %s: it has no partitions", topic)
	}
	return partitions, nil
}
