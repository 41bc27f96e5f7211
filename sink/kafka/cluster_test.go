package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/codes"
	"github.com/cdc-relay/cdc-relay/test/cutproxy"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// told is a metadata answer of brokers 1 and 2 about one partition of "t".
func told(leader, epoch int32) *metadata.Response {
	return &metadata.Response{
		Brokers: []metadata.ResponseBroker{{NodeID: 1, Host: "a", Port: 1}, {NodeID: 2, Host: "b", Port: 2}},
		Topics: []metadata.ResponseTopic{{Name: "t", Partitions: []metadata.ResponsePartition{
			{PartitionIndex: 0, LeaderID: leader, LeaderEpoch: epoch},
		}}},
	}
}

func emptyView() *view {
	return &view{topics: make(map[string]*topicView), changed: make(chan struct{})}
}

// Breaks when a broker that lags behind takes the leadership back to where it was, or when a topic that was created
// again is never believed.
func TestOlderLeaderEpochIsIgnoredForAWhile(t *testing.T) {
	now := time.Now()
	want := func(v *view, node int32, when string) {
		t.Helper()
		if got := v.topics["t"].partitions[0].node; got != node {
			t.Errorf("leader %s: got %d, want %d", when, got, node)
		}
	}
	v, _ := emptyView().advance(told(1, 5), now)
	v, n := v.advance(told(2, 6), now)
	want(v, 2, "after an election")
	if len(n.moves) != 1 || n.moves[0] != (move{topicPartition{"t", 0}, 1, 2}) {
		t.Errorf("moves: got %+v, want one from 1 to 2", n.moves)
	}
	stale, n := v.advance(told(1, 5), now)
	want(stale, 2, "told by a broker that lags")
	if stale.changed != v.changed || len(n.moves) != 0 {
		t.Error("a stale answer woke somebody")
	}
	if stale.settled([]string{"t"}, now) {
		t.Error("settled although a broker doubts the leader")
	}
	stale, _ = stale.advance(told(1, 5), now.Add(doubtPatience-time.Millisecond))
	want(stale, 2, "told by a broker that lags still")
	again, _ := stale.advance(told(1, 0), now.Add(doubtPatience))
	want(again, 1, "told for so long that it must be another topic")
	renewed, _ := stale.advance(told(2, 6), now)
	if !renewed.settled([]string{"t"}, now) {
		t.Error("doubt stays although the broker caught up")
	}
	unversioned, _ := v.advance(told(1, -1), now)
	want(unversioned, 1, "told by a broker without epochs")
}

// Breaks when a partition keeps a leader that the cluster does not name, or that refused.
func TestLeaderMustBeABrokerOfTheCluster(t *testing.T) {
	v, _ := emptyView().advance(told(7, 1), time.Now())
	if got := v.topics["t"].partitions[0].node; got != -1 {
		t.Errorf("leader that the cluster does not name: got %d, want -1", got)
	}
	v, _ = v.advance(told(1, 1), time.Now())
	if got := v.without("t", 0, 2); got != v {
		t.Error("a refusal by another broker than the leader changed the view")
	}
	without := v.without("t", 0, 1)
	if got := without.topics["t"].partitions[0]; got.node != -1 || got.epoch != 1 {
		t.Errorf("leader after its refusal: got %+v, want none, epoch 1", got)
	}
	if v.topics["t"].partitions[0].node != 1 {
		t.Error("the view before was changed")
	}
}

// Breaks when a topic that is away changes where keys go, keeps leaders, or is believed only slowly when created again.
func TestTopicThatIsAwayKeepsItsPartitions(t *testing.T) {
	v, _ := emptyView().advance(told(1, 5), time.Now())
	away := &metadata.Response{Brokers: told(1, 5).Brokers, Topics: []metadata.ResponseTopic{{Name: "t", ErrorCode: 3}}}
	v, _ = v.advance(away, time.Now())
	topic := v.topics["t"]
	if len(topic.partitions) != 1 || topic.partitions[0].node != -1 || !codes.Is(topic.err, 3) {
		t.Errorf("topic that is away: got %+v, want 1 partition without leader and the reason", topic)
	}
	wanted := []string{"t"}
	v, _ = v.advance(away, time.Now().Add(suspicion/2))
	if v.settled(wanted, time.Now().Add(suspicion-time.Second)) {
		t.Error("a topic that is away is not asked for often at first")
	}
	if !v.settled(wanted, time.Now().Add(suspicion)) {
		t.Error("a topic that is away is asked for often for ever")
	}
	v, n := v.advance(told(2, 0), time.Now())
	if topic := v.topics["t"]; topic.partitions[0].node != 2 || topic.err != nil || len(n.resizes) != 0 {
		t.Errorf("topic that is back: got %+v and %+v, want leader 2", topic, n)
	}
}

// Breaks when an unchanged answer wakes the engine, or a changed one does not.
func TestChangedClosesOnlyWithNews(t *testing.T) {
	v, _ := emptyView().advance(told(1, 5), time.Now())
	if same, _ := v.advance(told(1, 5), time.Now()); same.changed != v.changed {
		t.Error("an equal answer counts as news")
	}
	for what, answer := range map[string]*metadata.Response{
		"a leader": told(2, 6), "no leader": told(-1, 6), "an epoch": told(1, 6),
		"an address": func() *metadata.Response { r := told(1, 5); r.Brokers[0].Port = 9; return r }(),
		"a partition": func() *metadata.Response {
			r := told(1, 5)
			r.Topics[0].Partitions = append(r.Topics[0].Partitions, metadata.ResponsePartition{PartitionIndex: 1, LeaderID: 2})
			return r
		}(),
	} {
		if next, _ := v.advance(answer, time.Now()); next.changed == v.changed {
			t.Errorf("%s does not count as news", what)
		}
	}
}

// Breaks when a moved leader is noticed later than at once, or costs an outcome other than Unknown and no pause.
func TestLeaderMoveIsNoticedAtOnce(t *testing.T) {
	c := newFake(t)
	o := new(observed)
	d := newDriver(t, c.ListenAddrs(), func(c *Config) { c.Hooks = o.hooks() })
	for i := range int64(20) {
		wantAccepted(t, send(t, d, newBatch(d, "t", 0, "a")), 2*i)
		from := d.Node("t", 0)
		to := (from + 1) % 3
		if err := c.MoveTopicPartition("t", 0, to); err != nil {
			t.Fatal(err)
		}
		b := newBatch(d, "t", 0, "b")
		began := time.Now()
		d.Produce(testContext(t), from, []*sink.Batch{b})
		wantVerdict(t, b.Outcome, sink.Unknown)
		if b.Outcome.Pause || b.Outcome.Trouble != sink.PartitionTrouble {
			t.Errorf("outcome: got %+v, want partition trouble without a pause", b.Outcome)
		}
		await(t, d, "the new leader", func() bool { return d.Node("t", 0) == to })
		if took := time.Since(began); took > refreshInterval {
			t.Errorf("noticed the move after %v, want it before the next look of %v", took, refreshInterval)
		}
		wantAccepted(t, send(t, d, b), 2*i+1)
	}
	harness.Eventually(t, patience, "each move is told", func(context.Context) string { // behind the new leader
		o.mu.Lock()
		defer o.mu.Unlock()
		if len(o.moves) != 20 || d.Stats().LeaderMoves != 20 {
			return fmt.Sprintf("got %d and counted %d, want 20", len(o.moves), d.Stats().LeaderMoves)
		}
		return ""
	})
}

// Breaks when the driver asks for topics that no one asked it for, or asks often while all is well. Seen to fail with
// all topics asked for.
func TestMetadataTrafficIsSmall(t *testing.T) {
	c := newFake(t)
	s := newSpy(c)
	d := newDriver(t, c.ListenAddrs(), nil)
	wantAccepted(t, send(t, d, newBatch(d, "t", 0, "a")), 0)
	// the start has its own, which come late on a busy machine
	for ctx, before := testContext(t), -2; s.count(kmsg.Metadata)-before > 1; {
		before = s.count(kmsg.Metadata)
		if pause(ctx, time.Second) != nil {
			t.Fatal("there is no second with at most one metadata request")
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.metadata {
		if r.Topics == nil {
			t.Error("a request asks for all topics of the cluster")
		}
		for _, topic := range r.Topics {
			if *topic.Topic != "t" {
				t.Errorf("a request asks for %q", *topic.Topic)
			}
		}
		if r.AllowAutoTopicCreation {
			t.Error("a request would create a topic")
		}
	}
}

// Breaks when a missing topic is asked for forever without saying why, creates itself, or is not noticed when it comes.
func TestMissingTopicSaysWhyAndIsNoticed(t *testing.T) {
	c := newFake(t, kfake.AllowAutoTopicCreation())
	d := newDriver(t, c.ListenAddrs(), nil)
	await(t, d, "the reason", func() bool {
		n, err := d.Partitions("later")
		if n != 0 {
			t.Fatalf("partitions: got %d, want 0", n)
		}
		return codes.Is(err, 3)
	})
	if got := d.Node("later", 0); got != -1 {
		t.Errorf("node: got %d, want -1", got)
	}
	if err := d.CreateTopic(testContext(t), "later", 4, 1); err != nil {
		t.Fatal(err)
	}
	awaitTopic(t, d, "later")
	if n, err := d.Partitions("later"); n != 4 || err != nil {
		t.Errorf("partitions: got %d, %v, want 4", n, err)
	}
}

// Breaks when more partitions go unnoticed, or when no one is told what that does to keys.
func TestMorePartitionsAreNoticed(t *testing.T) {
	c := newFake(t)
	o := new(observed)
	d := newDriver(t, c.ListenAddrs(), func(c *Config) { c.Hooks = o.hooks() })
	awaitTopic(t, d, "t")
	if _, err := newAdmin(t, c.ListenAddrs()).UpdatePartitions(testContext(t), 7, "t"); err != nil {
		t.Fatal(err)
	}
	d.refreshSoon()
	await(t, d, "7 partitions", func() bool { n, _ := d.Partitions("t"); return n == 7 })
	o.awaitAlarm(t)
	o.wantAlarm(t, d, sink.AlarmPartitionChanged, sink.WholeTopic, "7 partitions instead of 3", "order of a key")
}

// Breaks when brokers that are away at the start are an error, are not told about, or are not found when they come.
func TestBrokersMayComeLater(t *testing.T) {
	c := newFake(t)
	var away atomic.Bool
	away.Store(true)
	o := new(observed)
	d := newDriver(t, c.ListenAddrs(), func(c *Config) {
		c.Hooks = o.hooks()
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if away.Load() {
				return nil, errors.New("no route")
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		}
	})
	for deadline := time.Now().Add(patience); ; {
		n, err := d.Partitions("t")
		if n == 0 && err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("partitions: got %d, %v, want a reason", n, err)
		}
		if pause(testContext(t), time.Millisecond) != nil {
			t.Fatal("the test's time is over")
		}
	}
	away.Store(false)
	wantAccepted(t, send(t, d, newBatch(d, "t", 0, "a")), 0)
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.errors) == 0 || d.Stats().MetadataFailures == 0 {
		t.Error("nobody was told that no broker answered")
	}
}

// Breaks when a broker that accepts connections and never answers, or falls silent after the handshake, keeps the
// driver from asking another.
func TestFrozenBrokerIsPassedOver(t *testing.T) {
	c := newFake(t)
	deaf, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	proxy := cutproxy.New(func(r cutproxy.Request) cutproxy.Action {
		if r.APIKey == int16(kmsg.Metadata) {
			return cutproxy.Action{Kind: cutproxy.Withhold}
		}
		return cutproxy.Action{}
	})
	defer proxy.Close()
	silent, err := proxy.Listen(c.ListenAddrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, frozen := range []string{deaf.Addr().String(), silent} {
		brokers := append([]string{frozen}, c.ListenAddrs()...)
		d := newDriver(t, brokers, func(c *Config) { c.DialTimeout = 200 * time.Millisecond })
		began := time.Now()
		if _, err := d.Ping(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("ping took %v, want little more than %v", took, d.controlTimeout())
		}
	}
}

// Breaks when authorization for a topic is not told as the topic's trouble.
func TestForbiddenTopicSaysWhy(t *testing.T) {
	c := newFake(t)
	d := newDriver(t, c.ListenAddrs(), nil)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "t", Err: kerr.TopicAuthorizationFailed, Count: -1})
	await(t, d, "the reason", func() bool { _, err := d.Partitions("t"); return codes.Is(err, 29) })
}

// Breaks when what a broker said before it froze is taken for an answer to what was asked since: its events would be
// parked as if their topic were in trouble. Seen to fail with the time of the answer not compared.
func TestAnswersBeforeAFreezeAreNoneAfterIt(t *testing.T) {
	c := newFake(t, kfake.NumBrokers(1))
	d := newDriver(t, c.ListenAddrs(), func(c *Config) { c.DialTimeout = 100 * time.Millisecond })
	if _, err := d.Partitions("missing"); err != nil {
		t.Fatal(err)
	}
	await(t, d, "the missing topic", func() bool { _, err := d.Partitions("missing"); return err != nil })
	answered := func(since time.Time) string {
		if !d.AnsweredSince(since) {
			return "no answer"
		}
		return ""
	}
	asked := time.Now()
	harness.Eventually(t, patience, "an answer", func(context.Context) string { return answered(asked) })
	thawed := make(chan struct{})
	thaw := sync.OnceFunc(func() { close(thawed) })
	t.Cleanup(thaw)
	frozen := make(chan struct{})
	freeze := sync.OnceFunc(func() { close(frozen) })
	c.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
		freeze()
		<-thawed
		return nil, nil, false
	})
	d.refreshSoon()
	<-frozen
	asked = time.Now()
	if d.AnsweredSince(asked) {
		t.Error("frozen, and not known to be: got an answer since then")
	}
	harness.Eventually(t, patience, "the silence is known", func(context.Context) string {
		if d.AnsweredSince(asked) {
			t.Error("frozen: got an answer since then")
		}
		if d.Reachable() {
			return "reachable"
		}
		return ""
	})
	thaw()
	harness.Eventually(t, patience, "an answer after the freeze", func(context.Context) string { return answered(asked) })
}
