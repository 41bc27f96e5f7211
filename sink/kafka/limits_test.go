package kafka

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/recordset"
)

// setLimit sets a topic's max.message.bytes.
func setLimit(t testing.TB, brokers []string, topic string, bytes int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	value := fmt.Sprint(bytes)
	answers, err := kadm.NewClient(client).AlterTopicConfigs(testContext(t),
		[]kadm.AlterConfig{{Op: kadm.SetConfig, Name: configLimit, Value: &value}}, topic)
	if err == nil {
		err = answers[0].Err
	}
	if err != nil {
		t.Fatalf("set %s of %s: %v", configLimit, topic, err)
	}
}

// sized makes a batch of one record that takes exactly so many bytes as a batch of its own.
func sized(t testing.TB, d *Driver, topic string, bytes int) *sink.Batch {
	t.Helper()
	for n := bytes - recordset.Overhead - 30; n < bytes; n++ {
		b := newBatch(d, topic, 0, strings.Repeat("x", n))
		if recordset.Alone(b.Records[0])+recordset.Overhead == bytes {
			return b
		}
	}
	t.Fatalf("no record takes %d bytes", bytes)
	return nil
}

// stale makes the topic's limit old enough to be asked for again, and sets it.
func (d *Driver) stale(topic string, bytes int) {
	d.mu.Lock()
	d.limits[topic] = &limit{bytes: bytes, at: time.Now().Add(-time.Hour)}
	d.mu.Unlock()
}

// Breaks when batches are cut for another limit than the topic's and the configuration's, or the limit is never
// learned.
func TestBatchLimitIsTheSmallerOfTopicAndConfiguration(t *testing.T) {
	c := newFake(t)
	setLimit(t, c.ListenAddrs(), "t", 2000)
	d := newDriver(t, c.ListenAddrs(), func(c *Config) { c.MaxBatchBytes = 5000 })
	if batch, record := d.Limits("t"); batch != 5000-recordset.Overhead || record != maxRequestBytes {
		t.Errorf("presumed limits: got %d and %d, want %d and %d", batch, record, 5000-recordset.Overhead, maxRequestBytes)
	}
	awaitTopic(t, d, "t")
	awaitTopic(t, d, "u")
	for deadline := time.Now().Add(patience); ; {
		batch, _ := d.Limits("t")
		if batch == 2000-recordset.Overhead {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("batch limit: got %d, want %d", batch, 2000-recordset.Overhead)
		}
		if pause(testContext(t), time.Millisecond) != nil {
			t.Fatal("the test's time is over")
		}
	}
	if batch, _ := d.Limits("u"); batch != 5000-recordset.Overhead {
		t.Errorf("batch limit of the larger topic: got %d, want %d", batch, 5000-recordset.Overhead)
	}
}

// Breaks when a record of exactly the limit is refused, one byte more is sent, the reason lacks size or limit, or
// no one is told that nothing was sent. Seen to fail with a limit one byte too high, and without that word.
func TestRecordOverTheLimitIsRefusedUnsent(t *testing.T) {
	c := newFake(t)
	setLimit(t, c.ListenAddrs(), "t", 2000)
	s := newSpy(c)
	d := newDriver(t, c.ListenAddrs(), nil)
	awaitTopic(t, d, "t")
	d.stale("t", 2000)
	wantAccepted(t, send(t, d, sized(t, d, "t", 2000)), 0)
	requests := len(s.produced())
	o := send(t, d, sized(t, d, "t", 2001))
	wantVerdict(t, o, sink.Refused)
	want := "the record takes 2001 bytes as a batch of its own; the topic's max.message.bytes is 2000"
	if len(o.Reasons) != 1 || o.Reasons[0].Code != "MESSAGE_TOO_LARGE" || o.Reasons[0].Class != outbox.Permanent ||
		o.Reasons[0].Text != want {
		t.Errorf("reasons: got %+v, want permanent MESSAGE_TOO_LARGE: %s", o.Reasons, want)
	}
	if !o.Unsent {
		t.Error("the outcome does not say that nothing was sent")
	}
	if got := len(s.produced()); got != requests {
		t.Errorf("requests: got %d more, want none", got-requests)
	}
}

// Breaks when a record is blamed by a limit that was raised in the meantime (K6).
func TestRaisedLimitIsNoticedBeforeTheBlame(t *testing.T) {
	c := newFake(t)
	d := newDriver(t, c.ListenAddrs(), nil)
	awaitTopic(t, d, "t")
	setLimit(t, c.ListenAddrs(), "t", 4000)
	d.stale("t", 2000)
	wantAccepted(t, send(t, d, sized(t, d, "t", 3000)), 0)
}

// A person raises the limit and replays at once. Breaks when the belief of a moment ago refuses the head of a key once
// more, and its followers, a second later, go before it. Seen to fail with a replay that is like any other record.
func TestReplayIsNotRefusedByWhatWasBelievedAMomentAgo(t *testing.T) {
	c := newFake(t)
	setLimit(t, c.ListenAddrs(), "t", 2000)
	d := newDriver(t, c.ListenAddrs(), nil)
	awaitTopic(t, d, "t")
	d.stale("t", 2000)
	wantVerdict(t, send(t, d, sized(t, d, "t", 3000)), sink.Refused) // after asking
	setLimit(t, c.ListenAddrs(), "t", 4000)
	replayed := sized(t, d, "t", 3000)
	replayed.Records[0].Again = true
	wantAccepted(t, send(t, d, replayed), 0)
}

// Breaks when a limit that was lowered in the meantime is not told with the refusal, or keeps the old one for later
// batches. Seen to fail with a limit that is kept as long as it is known.
func TestLoweredLimitIsLearnedFromTheRefusal(t *testing.T) {
	c := newFake(t)
	d := newDriver(t, c.ListenAddrs(), nil)
	awaitTopic(t, d, "t")
	d.stale("t", 4000)
	setLimit(t, c.ListenAddrs(), "t", 2000)
	o := send(t, d, sized(t, d, "t", 3000))
	wantVerdict(t, o, sink.Refused)
	if !strings.Contains(o.Reasons[0].Text, "3000") || !strings.Contains(o.Reasons[0].Text, "2000") {
		t.Errorf("reason: got %q, want it to say 3000 and 2000", o.Reasons[0].Text)
	}
	if batch, _ := d.Limits("t"); batch != 2000-recordset.Overhead {
		t.Errorf("batch limit: got %d, want %d", batch, 2000-recordset.Overhead)
	}
}

// Breaks when a limit that may not be read makes records guilty unsent, or when the refusal claims to know it.
func TestUnreadableLimitLeavesTheBlameToTheBroker(t *testing.T) {
	c := newFake(t)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	setLimit(t, c.ListenAddrs(), "t", 3<<20)
	d := newDriver(t, c.ListenAddrs(), nil)
	wantAccepted(t, send(t, d, sized(t, d, "t", 2<<20)), 0)
	o := send(t, d, sized(t, d, "t", 4<<20))
	wantVerdict(t, o, sink.Refused)
	if !strings.Contains(o.Reasons[0].Text, "4194304") || !strings.Contains(o.Reasons[0].Text, "could not be read") {
		t.Errorf("reason: got %q, want the size, and that the limit is not known", o.Reasons[0].Text)
	}
}

// Breaks when a batch of several records is blamed as a whole.
func TestLargeBatchOfSmallRecordsNamesNobody(t *testing.T) {
	c := newFake(t)
	setLimit(t, c.ListenAddrs(), "t", 2000)
	d := newDriver(t, c.ListenAddrs(), nil)
	o := send(t, d, newBatch(d, "t", 0, strings.Repeat("a", 1500), strings.Repeat("b", 1500)))
	wantVerdict(t, o, sink.Refused)
	if len(o.Guilty) != 0 || len(o.Reasons) != 1 {
		t.Errorf("outcome: got guilty %v and %d reasons, want nobody and one", o.Guilty, len(o.Reasons))
	}
}
