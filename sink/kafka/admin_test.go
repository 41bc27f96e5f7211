package kafka

import (
	"context"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/codes"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/connect"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks when Ping leaves out what `check` shows, or hangs with brokers that are away.
func TestPingTellsTheCluster(t *testing.T) {
	c := newFake(t, kfake.ClusterID("the-cluster"))
	d := newDriver(t, c.ListenAddrs(), nil)
	got, err := d.Ping(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	var addresses []string
	for _, b := range got.Brokers {
		addresses = append(addresses, b.Address)
	}
	slices.Sort(addresses)
	want := slices.Sorted(slices.Values(c.ListenAddrs()))
	if got.ID != "the-cluster" || got.Controller < 0 || !slices.Equal(addresses, want) {
		t.Errorf("cluster: got %+v, want id the-cluster, a controller, brokers %v", got, want)
	}
	c.Close()
	if _, err := d.Ping(testContext(t)); err == nil || !strings.Contains(err.Error(), want[0]) {
		t.Errorf("ping of a closed cluster: got %v, want an error that names %s", err, want[0])
	}
}

// Breaks when what a topic is and how it is configured gets lost or mixed up between topics.
func TestTopicsTellShapeAndConfiguration(t *testing.T) {
	c := newFake(t)
	d := newDriver(t, c.ListenAddrs(), nil)
	ctx := testContext(t)
	setLimit(t, c.ListenAddrs(), "u", 5000)
	got, err := d.Topics(ctx, []string{"u", "missing", "t"})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || got[0].Name != "u" || got[1].Name != "missing" || got[2].Name != "t" {
		t.Fatalf("topics: got %+v, want u, missing, t", got)
	}
	u, missing, other := got[0], got[1], got[2]
	if len(u.Partitions) != 2 || u.Partitions[1].ID != 1 || u.Partitions[1].Leader != c.LeaderFor("u", 1) ||
		u.ReplicationFactor() != 3 {
		t.Errorf("u: got %+v, want 2 partitions of 3 replicas with their leaders", u)
	}
	if u.MaxMessageBytes != 5000 || u.MinInSyncReplicas != 1 || u.CleanupPolicy != "delete" ||
		u.TimestampType != "CreateTime" || u.ConfigErr != nil || u.Compacted() {
		t.Errorf("u: got %+v, want its configuration", u)
	}
	if !codes.Is(missing.Err, 3) || len(missing.Partitions) != 0 {
		t.Errorf("missing: got %+v, want code 3", missing)
	}
	if other.MaxMessageBytes != defaultMaxMessageBytes {
		t.Errorf("t: got limit %d, want the default %d", other.MaxMessageBytes, defaultMaxMessageBytes)
	}
	if !(Topic{CleanupPolicy: "compact,delete"}).Compacted() {
		t.Error("compact,delete: got not compacted")
	}
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	if got, err := d.Topics(ctx, []string{"u"}); err != nil || !codes.Is(got[0].ConfigErr, 29) || got[0].Err != nil {
		t.Errorf("configuration that may not be read: got %+v, %v, want code 29 for it alone", got, err)
	}
}

// Breaks when CreateTopic returns before the topic can be used, fails for one that exists, or hides a refusal.
func TestCreateTopicIsUsableAtOnceAndIdempotent(t *testing.T) {
	c := newFake(t)
	d := newDriver(t, c.ListenAddrs(), nil)
	ctx := testContext(t)
	for range 2 {
		if err := d.CreateTopic(ctx, "new", 5, 3); err != nil {
			t.Fatalf("create: %v", err)
		}
	}
	got, err := d.Topics(ctx, []string{"new"})
	if err != nil || got[0].Err != nil || len(got[0].Partitions) != 5 || got[0].ReplicationFactor() != 3 {
		t.Errorf("topic: got %+v, %v, want 5 partitions of 3 replicas", got, err)
	}
	if err := d.CreateTopic(ctx, "bad", 1, 9); !codes.Is(err, 38) {
		t.Errorf("create with 9 replicas on 3 brokers: got %v, want code 38", err)
	}
}

// Breaks when a configuration mistake is found one at a time, or only when connecting.
func TestConfigReportsEveryProblem(t *testing.T) {
	_, err := New(Config{Brokers: []string{"nohost"}, Compression: 5, MaxBatchBytes: 5, RequestTimeout: -time.Second})
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{`"nohost"`, "compression 5", "5 bytes", "negative"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not mention %s", err, want)
		}
	}
	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "no brokers") {
		t.Errorf("without brokers: got %v", err)
	}
}

// counted is a connection that counts itself while it is open.
type counted struct {
	net.Conn
	open   *atomic.Int32
	closed sync.Once
}

func (c *counted) Close() error {
	c.closed.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// Breaks when Close waits for silent brokers, or leaves connections and goroutines (see TestMain). Seen to fail with
// the open connections left to the Transport, which keeps the one whose request was given up.
func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	c := newFake(t)
	var open atomic.Int32
	d, err := New(Config{Brokers: c.ListenAddrs(),
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			var dialer net.Dialer
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			open.Add(1)
			return &counted{Conn: conn, open: &open}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	wantAccepted(t, send(t, d, newBatch(d, "t", 0, "a")), 0)
	ctx, cancel := context.WithCancel(testContext(t))
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) { cancel(); return nil, nil, true })
	b := newBatch(d, "t", 0, "b")
	d.Produce(ctx, d.Node("t", 0), []*sink.Batch{b})
	began := time.Now()
	if err := d.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("close took %v", took)
	}
	if n := open.Load(); n != 0 {
		t.Errorf("open connections: got %d, want 0", n)
	}
}

// Breaks when a right that we lack is not seen before the first event is refused, or one that is not known counts as
// lacking.
func TestTopicsTellWhetherWeMayWrite(t *testing.T) {
	acl := func(topic string, operation kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: topic, Pattern: kmsg.ACLResourcePatternTypeLiteral,
			Operation: operation, Allow: true}
	}
	c := newFake(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.User("PLAIN", "alice", "secret",
		acl("t", kmsg.ACLOperationWrite), acl("t", kmsg.ACLOperationDescribe), acl("u", kmsg.ACLOperationRead),
		acl("u", kmsg.ACLOperationDescribe)))
	file := secretFile(t, "secret")
	d := newDriver(t, c.ListenAddrs(), func(c *Config) { c.SASL = alice(connect.Plain, file) })
	got, err := d.Topics(testContext(t), []string{"t", "u"})
	if err != nil || got[0].Writable != Granted || got[1].Writable != Denied || got[0].Readable != Denied ||
		got[1].Readable != Granted {
		t.Errorf("topics: got %+v, %v; want t written and u read", got, err)
	}
	for operations, want := range map[int32]Right{0: RightUnknown, math.MinInt32: RightUnknown, 1 << 4: Granted,
		1<<3 | 1<<8: Denied} {
		if got := rightTo(operationWrite, operations); got != want {
			t.Errorf("operations %b: got right %d, want %d", operations, got, want)
		}
	}
}

// Breaks when a limit on timestamps is read in another unit, or when one that is as good as none counts as one.
func TestLimitsOnTimestampsAreRead(t *testing.T) {
	for _, row := range []struct {
		limits []string
		want   time.Duration
	}{
		{[]string{"", ""}, 0}, {[]string{"9223372036854775807", ""}, 0}, {[]string{"3600000", ""}, time.Hour},
		{[]string{"9223372036854775807", "60000"}, time.Minute}, {[]string{"1000", "60000"}, time.Second},
	} {
		if got := least(row.limits...); got != row.want {
			t.Errorf("least of %q: got %v, want %v", row.limits, got, row.want)
		}
	}
}

// Breaks when a real broker names the keys otherwise, or does not say what we may do.
func TestKafkaTellsRightsAndLimits(t *testing.T) {
	harness.Full(t)
	c := harness.Kafka(t)
	topic := c.Topic(t, "limited", 1, map[string]string{"message.timestamp.before.max.ms": "60000",
		"message.timestamp.after.max.ms": "5000", "retention.ms": "3600000"})
	d := newDriver(t, c.Addrs, nil)
	got, err := d.Topics(testContext(t), []string{topic})
	if err != nil || got[0].OldestMessage != time.Minute || got[0].NewestMessage != 5*time.Second ||
		got[0].Retention != time.Hour || got[0].Writable != Granted || got[0].Readable != Granted {
		t.Errorf("topic: got %+v, %v; want limits of a minute and 5s, an hour's retention, and the right to write", got, err)
	}
}
