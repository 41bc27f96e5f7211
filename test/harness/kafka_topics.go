package harness

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreateTopic creates a topic of exactly that name.
func (c *Cluster) CreateTopic(t testing.TB, topic string, partitions int, config map[string]string) {
	t.Helper()
	admin := c.Admin(t)
	replicas := int16(1)
	if len(c.Nodes) >= 3 {
		replicas = 3
	}
	values := make(map[string]*string, len(config))
	for key, value := range config {
		values[key] = &value
	}
	if _, err := admin.CreateTopic(t.Context(), int32(partitions), replicas, values, topic); err != nil {
		t.Fatalf("create topic %s: %v", topic, err)
	}
	t.Cleanup(func() {
		if len(c.Nodes) > 0 && c.Nodes[0].PID() == 0 {
			return // its broker is gone, and the topic with it
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, _ = admin.DeleteTopic(ctx, topic) // a test may have deleted it
	})
}

// Configure sets one setting of the topics, and waits until each broker goes by it: the controller answers before the
// brokers have heard of it.
func (c *Cluster) Configure(t testing.TB, key, value string, topics ...string) {
	t.Helper()
	set, err := c.Admin(t).AlterTopicConfigs(t.Context(),
		[]kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, topics...)
	for _, one := range set {
		if err == nil {
			err = one.Err
		}
	}
	if err != nil {
		t.Fatalf("set %s of %v: %v", key, topics, err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs...))
	if err != nil {
		t.Fatalf("make a Kafka client: %v", err)
	}
	defer client.Close()
	for n, broker := range client.SeedBrokers() {
		Eventually(t, time.Minute, fmt.Sprintf("broker %s knows %s=%s", c.Addrs[n], key, value),
			func(ctx context.Context) string {
				for _, topic := range topics {
					if got := configured(ctx, broker, topic, key); got != value {
						return fmt.Sprintf("%s: %s", topic, got)
					}
				}
				return ""
			})
	}
}

// configured is the setting as the broker itself knows it, or why it does not say.
func configured(ctx context.Context, broker *kgo.Broker, topic, key string) string {
	request, asked := kmsg.NewPtrDescribeConfigsRequest(), kmsg.NewDescribeConfigsRequestResource()
	asked.ResourceType, asked.ResourceName, asked.ConfigNames = kmsg.ConfigResourceTypeTopic, topic, []string{key}
	request.Resources = append(request.Resources, asked)
	answer, err := broker.Request(ctx, request)
	if err != nil {
		return err.Error()
	}
	for _, resource := range answer.(*kmsg.DescribeConfigsResponse).Resources {
		if err := kerr.ErrorForCode(resource.ErrorCode); err != nil {
			return err.Error()
		}
		for _, config := range resource.Configs {
			if config.Name == key && config.Value != nil {
				return *config.Value
			}
		}
	}
	return "not said"
}
