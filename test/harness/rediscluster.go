package harness

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// RedisCluster is servers of Redis that share the keys; the replicas, if any, come last.
type RedisCluster struct {
	Servers []*RedisServer

	t         testing.TB
	announced []string // addresses that clients are told; nil: the servers' own
}

// Masters is how many of a cluster's servers begin as masters.
const Masters = 3

// NewRedisCluster starts three masters with so many replicas each, and makes a cluster of them. A master that is silent
// for a second is followed by its replica.
func NewRedisCluster(t testing.TB, replicas int, settings ...string) *RedisCluster {
	t.Helper()
	c := &RedisCluster{t: t}
	args := []string{"--cluster", "create"}
	for range Masters * (1 + replicas) {
		bus, err := freeAddr()
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(bus)
		s := Redis(t, slices.Concat([]string{"--cluster-enabled", "yes", "--cluster-port", port,
			"--cluster-node-timeout", "1000", "--repl-diskless-sync-delay", "0"}, settings)...)
		c.Servers = append(c.Servers, s)
		args = append(args, s.Addr)
	}
	args = append(args, "--cluster-replicas", strconv.Itoa(replicas), "--cluster-yes")
	if out, err := exec.CommandContext(t.Context(), "redis-cli", args...).CombinedOutput(); err != nil {
		missing(t, "redis-cli --cluster create", fmt.Errorf("%w: %s", err, out))
	}
	c.AwaitWell()
	return c
}

// URLs is what redis.url may be.
func (c *RedisCluster) URLs() string {
	var urls []string
	for _, s := range c.Servers {
		urls = append(urls, "redis://"+s.Addr)
	}
	return strings.Join(urls, ",")
}

// Client is of the whole cluster.
func (c *RedisCluster) Client() *redis.ClusterClient {
	var addrs []string
	for _, s := range c.Servers {
		addrs = append(addrs, s.Addr)
	}
	redis.SetLogger(&logging.VoidLogger{}) // of connections to nodes that are killed
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, Protocol: 2})
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

// on has one server asked, past the others.
func (c *RedisCluster) on(s *RedisServer, ask func(context.Context, *redis.Client) error) error {
	client := redis.NewClient(&redis.Options{Addr: s.Addr, Protocol: 2, MaxRetries: -1, DialerRetries: 1,
		ReadTimeout: time.Second})
	defer func() { _ = client.Close() }()
	return ask(context.WithoutCancel(c.t.Context()), client)
}

// Announce has each server told to clients, and to its replicas, at another address of this host, such as a proxy's.
func (c *RedisCluster) Announce(addrs []string) {
	c.t.Helper()
	c.announced = addrs
	for i, s := range c.Servers {
		_, port, _ := net.SplitHostPort(addrs[i])
		err := c.on(s, func(ctx context.Context, client *redis.Client) error {
			return client.ConfigSet(ctx, "cluster-announce-port", port).Err()
		})
		if err != nil {
			c.t.Fatal(err)
		}
	}
	Eventually(c.t, time.Minute, "all servers tell the announced addresses", func(context.Context) string {
		for _, s := range c.Servers {
			err := c.on(s, func(ctx context.Context, client *redis.Client) error {
				ranges, err := client.ClusterSlots(ctx).Result()
				for _, r := range ranges {
					for _, node := range r.Nodes {
						if !slices.Contains(addrs, node.Addr) {
							return fmt.Errorf("%s tells %s", s.Addr, node.Addr)
						}
					}
				}
				return err
			})
			if err != nil {
				return err.Error()
			}
		}
		return ""
	})
}

// AwaitWell waits until each server says that the cluster is well, each slot has a master, and each master has as many
// replicas as the others, who have all that it has.
func (c *RedisCluster) AwaitWell() {
	c.t.Helper()
	Eventually(c.t, time.Minute, "the cluster is well", func(context.Context) string {
		for _, s := range c.Servers {
			err := c.on(s, func(ctx context.Context, client *redis.Client) error {
				info, err := client.ClusterInfo(ctx).Result()
				if err != nil {
					return err
				}
				for _, want := range []string{"cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:" +
					strconv.Itoa(len(c.Servers)), "cluster_size:" + strconv.Itoa(Masters)} {
					if !strings.Contains(info, want) {
						return fmt.Errorf("got %s, want %s", info, want)
					}
				}
				return c.followed(ctx, client)
			})
			if err != nil {
				return s.Addr + ": " + err.Error()
			}
		}
		return ""
	})
}

// followed checks that a master's replicas have all that it has, and that a replica has a master.
func (c *RedisCluster) followed(ctx context.Context, client *redis.Client) error {
	role, err := client.Do(ctx, "ROLE").Slice()
	if err != nil {
		return err
	}
	if role[0] != "master" {
		if role[3] != "connected" {
			return fmt.Errorf("the replica is %v", role)
		}
		return nil
	}
	replicas := len(c.Servers)/Masters - 1
	if there, err := client.Wait(ctx, replicas, 500*time.Millisecond).Result(); err != nil || int(there) < replicas {
		return fmt.Errorf("%d replicas have the end, want %d, %w", there, replicas, err)
	}
	return nil
}

// MasterOf is the server that has the key, as the others say, and a replica of it, if it has one.
func (c *RedisCluster) MasterOf(key string) (master, replica *RedisServer) {
	c.t.Helper()
	Eventually(c.t, time.Minute, "the key has a master", func(context.Context) string {
		master, replica = nil, nil
		said := map[string]int{}
		for _, s := range c.Servers {
			_ = c.on(s, func(ctx context.Context, client *redis.Client) error {
				slot, err := client.ClusterKeySlot(ctx, key).Result()
				if err != nil {
					return err
				}
				ranges, err := client.ClusterSlots(ctx).Result()
				for _, r := range ranges {
					if int(slot) >= r.Start && int(slot) <= r.End {
						said[r.Nodes[0].Addr]++
						if len(r.Nodes) > 1 {
							replica = c.at(r.Nodes[1].Addr)
						}
					}
				}
				return err
			})
		}
		for addr, times := range said {
			if times > len(c.Servers)/2 {
				master = c.at(addr)
			}
		}
		if master == nil {
			return fmt.Sprint("they say ", said)
		}
		return ""
	})
	return master, replica
}

func (c *RedisCluster) at(addr string) *RedisServer {
	for i, s := range c.Servers {
		if s.Addr == addr || c.announced != nil && c.announced[i] == addr {
			return s
		}
	}
	return nil
}

// FailOver kills the key's master, has meanwhile done something else, waits until its replica is the master, and starts
// the killed one.
func (c *RedisCluster) FailOver(key string, meanwhile func()) {
	c.t.Helper()
	before, _ := c.MasterOf(key)
	before.Kill9()
	meanwhile()
	c.AwaitMasterOtherThan(key, before)
	before.Start(c.t)
}

// AwaitMasterOtherThan waits until most servers say that the key has another master.
func (c *RedisCluster) AwaitMasterOtherThan(key string, before *RedisServer) {
	c.t.Helper()
	Eventually(c.t, time.Minute, "the key has another master", func(context.Context) string {
		if now, _ := c.MasterOf(key); now == before {
			return "it is still " + before.Addr
		}
		return ""
	})
}

// MoveSlot moves the key's slot, with all that is in it, to a master that has it not. Between the two halves, each of
// which moves some keys, something else may happen; then the owner is made known.
func (c *RedisCluster) MoveSlot(key string, meanwhile func()) {
	c.t.Helper()
	from, _ := c.MasterOf(key)
	var to *RedisServer
	for _, s := range c.Servers {
		_ = c.on(s, func(ctx context.Context, client *redis.Client) error {
			if role, err := client.Do(ctx, "ROLE").Slice(); err == nil && role[0] == "master" && s != from {
				to = s
			}
			return nil
		})
	}
	must := func(s *RedisServer, words ...any) (answer any) {
		c.t.Helper()
		err := c.on(s, func(ctx context.Context, client *redis.Client) (err error) {
			answer, err = client.Do(ctx, words...).Result()
			return err
		})
		if err != nil {
			c.t.Fatalf("%v at %s: %v", words, s.Addr, err)
		}
		return answer
	}
	slot := must(from, "CLUSTER", "KEYSLOT", key)
	source, target := must(from, "CLUSTER", "MYID"), must(to, "CLUSTER", "MYID")
	must(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", source)
	must(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", target)
	meanwhile()
	host, port, _ := net.SplitHostPort(to.Addr)
	for {
		keys, _ := must(from, "CLUSTER", "GETKEYSINSLOT", slot, 100).([]any)
		if len(keys) == 0 {
			break
		}
		must(from, append([]any{"MIGRATE", host, port, "", 0, 5000, "KEYS"}, keys...)...)
		meanwhile()
	}
	must(to, "CLUSTER", "SETSLOT", slot, "NODE", target)
	must(from, "CLUSTER", "SETSLOT", slot, "NODE", target)
	Eventually(c.t, time.Minute, "the slot has moved", func(context.Context) string {
		if now, _ := c.MasterOf(key); now != to {
			return "it is at " + now.Addr
		}
		return ""
	})
}
