package redis_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/redis"
	"github.com/cdc-relay/cdc-relay/test/cutproxy"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// streamCluster is a cluster with a proxy before each of its masters, which have no replicas.
type streamCluster struct {
	streamBed
	cluster *harness.RedisCluster
	proxies []*cutproxy.Plain
}

func newStreamCluster(t *testing.T) *streamCluster {
	t.Helper()
	c := &streamCluster{cluster: harness.NewRedisCluster(t, 0)}
	client := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: c.cluster.Addrs(), Protocol: 2})
	t.Cleanup(func() { _ = client.Close() })
	c.client = client
	var addrs []string
	for _, s := range c.cluster.Servers {
		p := cutproxy.StartPlain(t, s.Addr)
		c.proxies, addrs = append(c.proxies, p), append(addrs, p.Addr)
	}
	c.cluster.Announce(addrs)
	return c
}

// driver knows one node, and learns of the others by it.
func (c *streamCluster) driver(t *testing.T) *redis.Streams {
	t.Helper()
	d, err := redis.NewStreams(redis.StreamsConfig{URL: "redis://" + c.proxies[0].Addr, Cluster: true,
		RequestTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() }) // of a test that is skipped
	return d
}

// TestClusterConformance runs the suite of all drivers on a cluster, each node behind a proxy that cuts. Breaks it
// catches: see there. Seen to fail without reading back.
func TestClusterConformance(t *testing.T) {
	c := newStreamCluster(t)
	sinktest.Run(t, func(t *testing.T) sinktest.Fixture {
		return sinktest.Fixture{
			Driver:       c.driver(t),
			Topic:        func(t *testing.T, _ int) string { return c.topic(t) },
			Read:         c.read,
			Deduplicates: true,
			Lacks:        sinktest.Lacks{Timestamps: true, NullHeaders: true},
			LoseAnswers: func(n int) {
				for _, p := range c.proxies {
					p.LoseAnswers(n)
				}
			},
			Outage: func() (end func()) {
				var ends []func()
				for _, p := range c.proxies {
					ends = append(ends, p.Outage())
				}
				return func() {
					for _, end := range ends {
						end()
					}
				}
			},
		}
	})
}

// Slots move while connections to all nodes break. Breaks it catches: an event lost, doubled or out of order because a
// node that had the stream, or gets it, answered; a script that is repeated where the first one may have been carried
// out. Seen to fail without reading back, and with redirections not followed.
func TestMovedSlotsLoseDoubleAndReorderNothing(t *testing.T) {
	c := newStreamCluster(t)
	topic := c.topic(t)
	f := sinktest.NewFlow(t, c.driver(t))
	const n = 20_000
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Send(sinktest.Events(topic, 0, n))
	}()
	var disturbers sync.WaitGroup
	for _, p := range c.proxies {
		disturbers.Go(func() { cutproxy.Disturb(p, f.Progress, done, func() {}) })
	}
	moves := 0
	for going := true; going; {
		c.cluster.MoveSlot(topic, func() { // events go on before the stream has moved, and behind it
			length := c.client.XLen(t.Context(), topic).Val()
			harness.Eventually(t, time.Minute, "events come to the stream that moves", func(context.Context) string {
				select {
				case <-done:
					going = false
				default:
					if now := c.client.XLen(t.Context(), topic).Val(); now < length+10 {
						return fmt.Sprint(now)
					}
				}
				return ""
			})
		})
		moves++
	}
	disturbers.Wait()
	t.Logf("the slot moved %d times", moves)
	sinktest.WantOnceInOrder(t, c.read(t, topic), n)
}

// Breaks it catches: one node's trouble taken for the whole cluster's, which parks nothing; a server that is none of a
// cluster, and a node that is asked as if it were alone, not told apart by check. Seen to fail with every trouble the
// cluster's, and with a server not asked whether it is a node.
func TestTroubleOfANodeIsOfItsKeysAlone(t *testing.T) {
	c := newStreamCluster(t)
	f := sinktest.NewFlow(t, c.driver(t))
	sick := c.topic(t)
	master, _ := c.cluster.MasterOf(sick)
	well := c.topic(t)
	for { // a stream of another node
		if other, _ := c.cluster.MasterOf(well); other != master {
			break
		}
		well = c.topic(t)
	}
	f.Send(sinktest.Events(sick, 0, 10))
	other := sinktest.NewFlow(t, c.driver(t))
	other.Send(sinktest.Events(well, 0, 10))
	for i, s := range c.cluster.Servers {
		if s == master {
			t.Cleanup(c.proxies[i].Outage())
		}
	}
	if _, err := f.Submit(t.Context(), sinktest.Events(sick, 10, 10)); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, 20*time.Second, "the partition is in trouble", func(context.Context) string {
		for _, r := range f.Troubles() {
			if r.Topic == sick && r.Kind == sink.PartitionTrouble {
				return ""
			}
		}
		return fmt.Sprintf("%+v", f.Troubles())
	})
	other.Send(sinktest.Events(well, 10, 10))

	alone := harness.Redis(t)
	for _, wrong := range []struct {
		config redis.StreamsConfig
		says   string
	}{
		{redis.StreamsConfig{URL: "redis://" + alone.Addr, Cluster: true}, "cluster support disabled"},
		{redis.StreamsConfig{URL: "redis://" + c.cluster.Servers[0].Addr}, "set redis.cluster.enabled"},
	} {
		d, err := redis.NewStreams(wrong.config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		if text, _, err := d.Examine(t.Context(), ""); err == nil || !strings.Contains(err.Error(), wrong.says) {
			t.Errorf("examine: got %q, %v, want %q", text, err, wrong.says)
		}
	}
}

// Breaks it catches: a printed command that lets the user in at one node of the cluster alone, or lacks a right that
// only clients of a cluster need.
func TestPastedCommandsReachEachNodeOfACluster(t *testing.T) {
	c := newStreamCluster(t)
	topic := c.topic(t)
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, s := range c.cluster.Servers {
		if _, err := s.Ask("ACL", "SETUSER", "relay", "on", ">secret"); err != nil {
			t.Fatal(err)
		}
	}
	d, err := redis.NewStreams(redis.StreamsConfig{URL: "redis://relay@" + c.proxies[0].Addr, PasswordFile: password,
		Cluster: true, RequestTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	var pasted []string
	for range 3 { // the server names what it misses first
		if _, _, err = d.Examine(t.Context(), topic); err == nil {
			break
		}
		command := regexp.MustCompile(`redis-cli --cluster call [^;\n"(]*`).FindString(err.Error())
		if command == "" {
			break
		}
		pasted = append(pasted, command)
		if said, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, said)
		}
	}
	if len(pasted) == 0 || err != nil {
		t.Fatalf("after %s: got %v", strings.Join(pasted, "\n"), err)
	}
	sinktest.NewFlow(t, d).Send(sinktest.Events(topic, 0, 100))
	sinktest.WantOnceInOrder(t, c.read(t, topic), 100)
}
