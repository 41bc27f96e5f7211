package harness

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/cutproxy"
	"github.com/cdc-relay/cdc-relay/test/embedded"
)

// RabbitCluster is three servers of RabbitMQ, which keep what a quorum queue and a stream have. A node that sees no
// majority pauses.
type RabbitCluster struct {
	Nodes []*RabbitServer
	links map[[2]int]*cutproxy.Plain // from one node to another
}

const rabbitClusterSize = 3

// RabbitNodes starts a cluster for this test alone. The nodes speak to each other through proxies, so that one can be
// cut off from the others while clients reach it.
func RabbitNodes(t testing.TB) *RabbitCluster {
	t.Helper()
	needsServers(t)
	c := &RabbitCluster{links: map[[2]int]*cutproxy.Plain{}}
	var ports [rabbitClusterSize]int
	for i := range ports {
		port, err := embedded.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		ports[i] = port
	}
	name := func(i int) string { return fmt.Sprintf("relay%d", ports[i]) }
	for i := range ports {
		seen := map[string]int{name(i): ports[i]}
		for j := range ports {
			if i == j {
				continue
			}
			link := cutproxy.StartPlain(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[j])))
			c.links[[2]int{i, j}] = link
			_, port, _ := net.SplitHostPort(link.Addr)
			seen[name(j)], _ = strconv.Atoi(port)
		}
		mapper, err := newErlangMapper(seen)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := mapper.close(); err != nil {
				t.Error(err)
			}
		})
		s := &RabbitServer{server: server{name: "rabbitmq-server", patience: 3 * time.Minute}, port: ports[i]}
		s.mapper = strconv.Itoa(mapper.port())
		s.cluster = []string{"cluster_partition_handling = pause_minority", "net_ticktime = 8"}
		if i > 0 {
			s.cluster = append(s.cluster, fmt.Sprintf("cluster_formation.classic_config.nodes.1 = %s@localhost", name(0)))
		}
		s.of(t, s.begin(t.Context(), s.describe))
		c.Nodes = append(c.Nodes, s)
	}
	return c
}

// CutOff parts a node from the others until heal is called. Clients reach it still.
func (c *RabbitCluster) CutOff(node int) (heal func()) {
	var ends []func()
	for between, link := range c.links {
		if between[0] == node || between[1] == node {
			ends = append(ends, link.Outage())
		}
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// leaderOf is Erlang: who leads a queue, and how many of its members are online.
const leaderOf = `{ok, Q} = rabbit_amqqueue:lookup({resource, <<"/">>, queue, <<%q>>}),
	[{leader, Leader}, {online, Online}] = (amqqueue:get_type(Q)):info(Q, [leader, online]),
	lists:flatten(io_lib:format("~s ~b", [Leader, length(Online)])).
`

// Leader returns which node leads the queue or stream, as the asked one sees it, and how many members are online.
// rabbitmqctl would tell, too, but takes half a minute for it on a busy machine.
func (c *RabbitCluster) Leader(t testing.TB, asked int, queue string) (leader, online int, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	command := exec.CommandContext(ctx, "/usr/bin/erl_call", "-c", erlangCookie, "-address",
		fmt.Sprintf("127.0.0.1:%d", c.Nodes[asked].port), "-timeout", "10", "-e")
	command.Stdin = strings.NewReader(fmt.Sprintf(leaderOf, queue))
	out, err := command.CombinedOutput()
	if err != nil {
		return 0, 0, fmt.Errorf("ask node %d for its queues: %w: %s", asked, err, out)
	}
	var port int
	if _, err := fmt.Sscanf(string(out), `{ok, "relay%d@localhost %d"}`, &port, &online); err != nil {
		return 0, 0, fmt.Errorf("ask node %d for %s: it says %q", asked, queue, out)
	}
	for i, node := range c.Nodes {
		if node.port == port {
			return i, online, nil
		}
	}
	return 0, 0, fmt.Errorf("node %d says that %s is led by %d, which is none of the nodes", asked, queue, port)
}

// erlangCookie authenticates the nodes to each other. They listen on the loopback interface alone.
const erlangCookie = "RELAYRELAYRELAY"

// cookie leaves it where a node looks for it.
func (s *RabbitServer) cookie() error {
	if err := os.WriteFile(filepath.Join(s.dir, ".erlang.cookie"), []byte(erlangCookie), 0o400); err != nil {
		return fmt.Errorf("write Erlang's cookie: %w", err)
	}
	return nil
}
