package redis_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-relay/cdc-relay/sink/redis"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// newQueueCluster is a cluster without proxies, of whose nodes the driver knows one.
func newQueueCluster(t *testing.T) (*queueBed, *harness.RedisCluster) {
	t.Helper()
	cluster := harness.NewRedisCluster(t, 0)
	client := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: cluster.Addrs(), Protocol: 2})
	t.Cleanup(func() { _ = client.Close() })
	return &queueBed{client: client, config: redis.BullMQConfig{URL: "redis://" + cluster.Servers[0].Addr, Cluster: true,
		Prefix: "{bull}", RequestTimeout: 2 * time.Second, JobName: "{id}", IDHeader: "id", Unrecorded: 10_000}}, cluster
}

// TestBullMQClusterConformance runs the suite of all drivers on a cluster. Breaks it catches: see there; keys of a
// queue that are in several slots. Seen to fail, by not ending, with a prefix without braces.
func TestBullMQClusterConformance(t *testing.T) {
	harness.Full(t)
	b, _ := newQueueCluster(t)
	sinktest.Run(t, func(t *testing.T) sinktest.Fixture {
		return sinktest.Fixture{
			Driver:       b.driver(t),
			Topic:        func(t *testing.T, _ int) string { return b.topic(t) },
			Read:         b.read,
			Deduplicates: true,
		}
	})
}

// The slot of all queues moves, key by key: what is half there is refused, and waited for. Breaks it catches: a job
// lost, doubled or out of order because a node had a part of a queue. Seen to fail with the cluster asked as one
// server.
func TestMovedSlotLosesDoublesAndReordersNothing(t *testing.T) {
	harness.Full(t)
	b, cluster := newQueueCluster(t)
	topic := b.topic(t)
	f := sinktest.NewFlow(t, b.driver(t))
	const n = 10_000
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Send(sinktest.Events(topic, 0, n))
	}()
	wait := "{bull}:" + topic + ":wait"
	await := func(least int64) {
		harness.Eventually(t, time.Minute, "jobs are added", func(context.Context) string {
			if there := b.client.LLen(t.Context(), wait).Val(); there < least {
				return fmt.Sprint(there)
			}
			return ""
		})
	}
	await(n / 10)
	cluster.MoveSlot(wait, func() {})
	await(n / 2)
	cluster.MoveSlot(wait, func() {})
	<-done
	sinktest.WantOnceInOrder(t, b.read(t, topic), n)
}
