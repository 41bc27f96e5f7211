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

// Addrs are where the servers listen.
func (c *RedisCluster) Addrs() (addrs []string) {
	for _, s := range c.Servers {
		addrs = append(addrs, s.Addr)
	}
	return addrs
}

// cliPatience bounds one question to one server, which may be frozen.
const cliPatience = 2 * time.Second

// Ask asks one server by redis-cli.
func (s *RedisServer) Ask(words ...string) (answer string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), cliPatience)
	defer cancel()
	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return "", fmt.Errorf("read the address of redis-server: %w", err)
	}
	args := slices.Concat([]string{"-e", "-h", host, "-p", port}, s.cli, words)
	command := exec.CommandContext(ctx, "redis-cli", args...)
	out, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ask %s for %s: %w: %s", s.Addr, strings.Join(words, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// must is Ask of what cannot fail.
func (c *RedisCluster) must(s *RedisServer, words ...string) string {
	c.t.Helper()
	answer, err := s.Ask(words...)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer
}

// node is a node of the cluster as a server reports it.
type node struct {
	id, addr string
	flags    []string
	masterID string // "-": it is a master
	slots    []string
}

// nodes returns the server's CLUSTER NODES; none if it does not answer.
func (s *RedisServer) nodes() (all []node) {
	text, err := s.Ask("CLUSTER", "NODES")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(text) {
		f := strings.Fields(line) // id, ip:port@bus, flags, master, pings, pongs, epoch, link, slots…
		if len(f) < 8 {
			continue
		}
		addr, _, _ := strings.Cut(f[1], "@")
		all = append(all, node{id: f[0], addr: addr, flags: strings.Split(f[2], ","), masterID: f[3], slots: f[8:]})
	}
	return all
}

// has reports whether the slot is the node's.
func (n node) has(slot int) bool {
	return slices.ContainsFunc(n.slots, func(text string) bool {
		first, last, isRange := strings.Cut(text, "-")
		from, err := strconv.Atoi(first) // an open slot begins with a bracket
		to := from
		if isRange {
			to, _ = strconv.Atoi(last)
		}
		return err == nil && from <= slot && slot <= to
	})
}

// Announce has each server told to clients, and to its replicas, at another address of this host, such as a proxy's.
func (c *RedisCluster) Announce(addrs []string) {
	c.t.Helper()
	c.announced = addrs
	for i, s := range c.Servers {
		_, port, _ := net.SplitHostPort(addrs[i])
		c.must(s, "CONFIG", "SET", "cluster-announce-port", port)
	}
	Eventually(c.t, time.Minute, "all servers tell the announced addresses", func(context.Context) string {
		for _, s := range c.Servers {
			for _, n := range s.nodes() {
				if !slices.Contains(addrs, n.addr) {
					return fmt.Sprintf("%s tells %s", s.Addr, n.addr)
				}
			}
		}
		return ""
	})
}

// AwaitWell waits until each server says that the cluster is well, each slot has a master, and each master has as many
// replicas as the others, who have all that it has.
func (c *RedisCluster) AwaitWell() {
	c.t.Helper()
	replicas := strconv.Itoa(len(c.Servers)/Masters - 1)
	Eventually(c.t, time.Minute, "the cluster is well", func(context.Context) string {
		for _, s := range c.Servers {
			info, err := s.Ask("CLUSTER", "INFO")
			if err != nil {
				return err.Error()
			}
			for _, want := range []string{"cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:" +
				strconv.Itoa(len(c.Servers)), "cluster_size:" + strconv.Itoa(Masters)} {
				if !strings.Contains(info, want) {
					return fmt.Sprintf("%s says %s, want %s", s.Addr, info, want)
				}
			}
			role, err := s.Ask("INFO", "replication")
			switch {
			case err != nil:
				return err.Error()
			case strings.Contains(role, "role:slave"):
				if !strings.Contains(role, "master_link_status:up") {
					return role
				}
			default:
				if there, err := s.Ask("WAIT", replicas, "500"); err != nil || there < replicas {
					return fmt.Sprintf("%s replicas of %s have its end, %v", there, s.Addr, err)
				}
			}
		}
		return ""
	})
}

// MasterOf is the server that has the key, as most say, and a replica of it, if it has one.
func (c *RedisCluster) MasterOf(key string) (master, replica *RedisServer) {
	c.t.Helper()
	Eventually(c.t, time.Minute, "the key has a master", func(context.Context) string {
		master, replica = nil, nil
		said := map[string]int{}
		for _, s := range c.Servers {
			text, _ := s.Ask("CLUSTER", "KEYSLOT", key)
			slot, err := strconv.Atoi(text)
			if err != nil {
				continue
			}
			all := s.nodes()
			for _, n := range all {
				if !n.has(slot) {
					continue
				}
				said[n.addr]++
				if at := slices.IndexFunc(all, func(other node) bool { return other.masterID == n.id }); at >= 0 {
					replica = c.at(all[at].addr)
				}
			}
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

// FailOver kills the key's master, has in the meantime done something else, waits until its replica is the master, and
// starts the killed one.
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

// MoveSlot moves the key's slot, with all that is in it, to a master that has it not. Before the first keys move, and
// after each hundred that did, something else may happen; then the owner is made known.
func (c *RedisCluster) MoveSlot(key string, meanwhile func()) {
	c.t.Helper()
	from, _ := c.MasterOf(key)
	var to *RedisServer
	for _, n := range from.nodes() {
		if s := c.at(n.addr); n.masterID == "-" && s != from {
			to = s
		}
	}
	slot := c.must(from, "CLUSTER", "KEYSLOT", key)
	source, target := c.must(from, "CLUSTER", "MYID"), c.must(to, "CLUSTER", "MYID")
	c.must(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", source)
	c.must(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", target)
	meanwhile()
	host, port, _ := net.SplitHostPort(to.Addr)
	for {
		keys := strings.Fields(c.must(from, "CLUSTER", "GETKEYSINSLOT", slot, "100"))
		if len(keys) == 0 {
			break
		}
		c.must(from, append([]string{"MIGRATE", host, port, "", "0", "5000", "KEYS"}, keys...)...)
		meanwhile()
	}
	c.must(to, "CLUSTER", "SETSLOT", slot, "NODE", target)
	c.must(from, "CLUSTER", "SETSLOT", slot, "NODE", target)
	Eventually(c.t, time.Minute, "the slot has moved", func(context.Context) string {
		if now, _ := c.MasterOf(key); now != to {
			return "it is at " + now.Addr
		}
		return ""
	})
}
