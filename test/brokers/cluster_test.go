package brokers_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// The stream's slot moves to another node with the relay killed in between, and its master is killed, frozen, or
// followed by a replica that missed the end. Breaks it catches: a relay that goes on with a node that has the stream no
// more; one that doubles, or sends out of order, what it finds elsewhere; a loss that is not said, not found by verify,
// or not repaired. Seen to fail without the alarm.
func TestRedisClusterLosesOnlyWhatIsSaid(t *testing.T) {
	harness.Full(t)
	cluster := harness.NewRedisCluster(t, 1)
	reader := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), Protocol: 2})
	t.Cleanup(func() { _ = reader.Close() })
	var urls []string
	for _, addr := range cluster.Addrs() {
		urls = append(urls, "redis://"+addr)
	}
	judgeFailovers(t, failing{
		settings: []any{"sink", "redis-stream", "redis.url", strings.Join(urls, ","), "redis.cluster.enabled", true},
		faults:   harness.Count(t, "cluster faults"),
		await:    cluster.AwaitWell,
		kinds: func(topic string, relay *harness.Relay, publish func(func())) []func() {
			return []func(){
				func() {
					master, replica := cluster.MasterOf(topic)
					replica.Freeze()
					cutReplicas(t, master)
					publish(func() {})
					publish(func() { cluster.FailOver(topic, replica.Thaw) })
					publish(func() {}) // the next event shows what is lost
				},
				func() {
					publish(func() {
						cluster.MoveSlot(topic, func() {
							relay.Kill9()
							relay.Start(t)
						})
					})
					publish(func() {})
				},
				func() { // the master wakes up, and does not know yet that it is none any more
					former, _ := cluster.MasterOf(topic)
					publish(func() {
						former.Freeze()
						cluster.AwaitMasterOtherThan(topic, former)
					})
					former.Thaw()
					publish(func() {})
				},
				func() {
					publish(func() { cluster.FailOver(topic, func() {}) })
					publish(func() {})
				},
			}
		},
		loses: 0,
		read:  func(topic string) []message { return entriesOf(t, reader, topic) },
	})
}

// cutReplicas breaks the master's connections to its replicas.
func cutReplicas(t *testing.T, master *harness.RedisServer) {
	t.Helper()
	if _, err := master.Ask("CLIENT", "KILL", "TYPE", "replica"); err != nil {
		t.Fatalf("cut the replica off: %v", err)
	}
}
