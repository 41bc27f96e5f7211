package brokers_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/test/cutproxy"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// rabbitCluster is three nodes and one address before them, as a load balancer gives it.
type rabbitCluster struct {
	*harness.RabbitCluster
	t        testing.TB
	balancer *cutproxy.Plain
	address  func(*harness.RabbitServer) string // that the balancer leads to
	queue    string
}

// What becomes of a node.
const (
	kill           = "kill"
	cutOff         = "cut off"
	freeze         = "freeze"
	cutOffFollower = "cut off a follower"
)

// Under load the leader of a quorum queue, or of a stream, is killed, cut off from the others with the relay on its
// side, or frozen; a follower that the relay is connected to is cut off; the relay is killed at the same time. Breaks
// it catches: an event that only the leader that went had, and that counts as published; one that comes behind later
// ones of its key; a stream with an event twice; a queue with more of them twice than the relay says that it may have
// sent again.
func TestRabbitMQClusterLosesNothing(t *testing.T) {
	faults := harness.Count(t, "faults of RabbitMQ's cluster")
	if faults == 0 {
		t.Skip("runs at night")
	}
	nodes := harness.RabbitNodes(t)
	t.Run("quorum queue", func(t *testing.T) {
		c := rabbitCluster{RabbitCluster: nodes, t: t, address: func(s *harness.RabbitServer) string { return s.Addr }}
		c.judge(faults, forRabbitMQ, func(c *amqp.Channel, name string) { exchangeOf(t, c, name); bindTo(t, c, name) },
			func(c rabbitCluster) []message { return queued(drained(t, c.Nodes[0], c.queue)) })
	})
	t.Run("stream", func(t *testing.T) {
		c := rabbitCluster{RabbitCluster: nodes, t: t, address: func(s *harness.RabbitServer) string { return s.StreamAddr }}
		c.judge(faults, forStreams, func(c *amqp.Channel, name string) {
			if _, err := c.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": "stream"}); err != nil {
				t.Fatal(err)
			}
		}, func(c rabbitCluster) []message {
			leader, _, err := c.Leader(t, 0, c.queue)
			if err != nil {
				t.Fatal(err)
			}
			return streamed(t, c.Nodes[leader], c.queue)
		})
	})
	t.Run("member elsewhere", func(t *testing.T) { rabbitCluster{RabbitCluster: nodes}.judgeElsewhere(t) })
}

// A stream has its only member on one node, and the relay is connected to another, where it cannot read the stream
// back. Breaks it catches: a start after a kill that waits forever.
func (c rabbitCluster) judgeElsewhere(t *testing.T) {
	pg := harness.Postgres(t)
	settings := scenario{
		settings: forStreams(c.Nodes[0].StreamAddr),
		begin: func(topic string) {
			onRabbitMQ(t, c.Nodes[1], func(channel *amqp.Channel) {
				if _, err := channel.QueueDeclare(topic, true, false, false, false, amqp.Table{"x-queue-type": "stream",
					"x-initial-cluster-size": 1, "x-queue-leader-locator": "client-local"}); err != nil {
					t.Fatal(err)
				}
			})
		},
	}.prepare(t, pg)
	relay := harness.StartRelay(t, settings)
	conn := pg.Connect(t)
	write(t, conn, 0, 20)
	awaitPublished(t, pg, 20*rows)
	relay.Kill9()
	write(t, conn, 20, 40)
	relay.Start(t)
	awaitPublished(t, pg, 40*rows)
	relay.Stop(t)
	wantEach(t, streamed(t, c.Nodes[1], settings.Topic("order")), 40*rows, 0)
}

func (c rabbitCluster) judge(faults int, settingsOf func(addr string) []any, declare func(*amqp.Channel, string),
	read func(rabbitCluster) []message,
) {
	t := c.t.(*testing.T)
	const unrecorded = 150
	transactions := max(300, 60*faults)
	c.balancer = cutproxy.StartPlain(t, c.address(c.Nodes[0]))
	pg := harness.Postgres(t)
	settings := scenario{
		settings: append(settingsOf(c.balancer.Addr), "limits.max_unrecorded", unrecorded),
		begin: func(topic string) {
			c.queue = topic
			onRabbitMQ(t, c.Nodes[0], func(channel *amqp.Channel) { declare(channel, topic) })
			c.awaitWhole()
		},
	}.prepare(t, pg)
	relay := harness.StartRelay(t, settings)
	written := make(chan struct{})
	conn := pg.Connect(t)
	go func() {
		defer close(written)
		write(t, conn, 0, transactions)
	}()
	allowed, flowed := 0, 0
	count := func() {
		n, err := relay.AskMetric(t.Context(), "outbox_possible_duplicates_total")
		if err != nil {
			t.Fatal(err)
		}
		allowed += int(n)
	}
	for n := range faults {
		awaitPublished(t, pg, (n+1)*transactions*rows/(faults+2))
		what := []string{kill, cutOff, freeze, cutOffFollower}[n%4]
		begun := time.Now()
		end, leader := c.breakNode(what)
		if n%4 == 1 || n%8 == 4 {
			count()
			allowed += unrecorded
			relay.Kill9()
			relay.Start(t)
		}
		if leader < 0 {
			t.Logf("%s: no node leads", what)
		} else {
			flowed++
			seen := published(t, pg)
			awaitPublished(t, pg, min(seen+100, transactions*rows)) // with one node less
			t.Logf("%s: node %d leads, events flow after %v", what, leader, time.Since(begun).Round(100*time.Millisecond))
		}
		end()
		c.awaitWhole()
	}
	<-written
	awaitPublished(t, pg, transactions*rows)
	count()
	relay.Stop(t)
	if flowed <= faults/2 {
		t.Errorf("events flowed in %d faults of %d", flowed, faults)
	}
	if settings["sink"] == "rabbitmq-stream" {
		allowed = 0
	}
	duplicates := wantEach(t, read(c), transactions*rows, allowed)
	t.Logf("%d events, %d faults, %d duplicates of at most %d", transactions*rows, faults, duplicates, allowed)
}

// electionPatience is how long two nodes may take to have a leader. A node that sees the third one fall before the
// other does may take that for a partial partition, and pauses: then all stand still until the third is back.
const electionPatience = time.Minute

// breakNode breaks a node, and returns how it is repaired and which one leads then, -1 if none does.
func (c rabbitCluster) breakNode(what string) (repair func(), leader int) {
	t := c.t
	before, _, err := c.Leader(t, 0, c.queue)
	if err != nil {
		t.Fatal(err)
	}
	broken, s := before, c.Nodes[before]
	switch what {
	case cutOffFollower:
		broken = (before + 1) % len(c.Nodes)
		c.lead(broken)
		repair = c.CutOff(broken)
	case kill:
		c.lead(before)
		s.Kill9()
		repair = func() { s.Start(t) }
	case cutOff:
		c.lead(before)
		repair = c.CutOff(before)
	case freeze:
		c.lead((before + 1) % len(c.Nodes))
		s.Freeze()
		repair = s.Thaw
	}
	asked, deadline := -1, time.Now().Add(electionPatience)
	harness.Eventually(t, 3*time.Minute, "the others have a leader", func(context.Context) string {
		for away := 1; away < len(c.Nodes); away++ {
			other := (broken + away) % len(c.Nodes)
			if found, _, err := c.Leader(t, other, c.queue); err == nil && found != broken {
				asked, leader = other, found
				return ""
			}
		}
		if time.Now().After(deadline) {
			return ""
		}
		return "no other node leads"
	})
	if asked < 0 {
		return repair, -1
	}
	if what != freeze { // else the relay is elsewhere
		c.balancer.Lead(c.address(c.Nodes[asked]))
	}
	return repair, leader
}

// lead has the relay connected to that node.
func (c rabbitCluster) lead(node int) {
	c.balancer.Lead(c.address(c.Nodes[node]))
	c.balancer.Cut()
}

// awaitWhole waits until every node has the queue's three members online.
func (c rabbitCluster) awaitWhole() {
	harness.Eventually(c.t, 3*time.Minute, "three members are online", func(context.Context) string { return c.whole() })
}

// whole returns "" when every node has the queue's three members online.
func (c rabbitCluster) whole() string {
	for i := range c.Nodes {
		if _, online, err := c.Leader(c.t, i, c.queue); err != nil || online != len(c.Nodes) {
			return fmt.Sprintf("node %d sees %d, %v", i, online, err)
		}
	}
	return ""
}

// published is how many events the journal has.
func published(t testing.TB, pg *harness.PG) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(pg.Query(t, "SELECT count(*) FROM cdc_relay_journal"), &n); err != nil {
		t.Fatal(err)
	}
	return n
}
