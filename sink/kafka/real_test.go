package kafka

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/cutproxy"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// values are the values in a topic of one partition, read by another client.
func values(t testing.TB, brokers []string, topic string) string {
	t.Helper()
	var all []string
	harness.Consume(t, brokers, []string{topic}, func(r *kgo.Record) { all = append(all, string(r.Value)) })
	return strings.Join(all, " ")
}

// deliver sends a batch until it is accepted or refused, as the engine does: the leader of a new topic may not know at
// first that it is.
func deliver(t testing.TB, d *Driver, b *sink.Batch) sink.Outcome {
	t.Helper()
	ctx := testContext(t)
	for {
		o := send(t, d, b)
		if o.Verdict == sink.Accepted || o.Verdict == sink.Refused {
			return o
		}
		if pause(ctx, 20*time.Millisecond) != nil {
			t.Fatalf("outcome: got %+v, want an answer", o)
		}
	}
}

// Breaks when a real broker cannot read a batch as we encode it, or names other records than we think. Seen to fail
// with another checksum, and with the records that the broker names passed over.
func TestKafkaNamesTheGuiltyRecords(t *testing.T) {
	c := harness.Kafka(t)
	for _, refusal := range []struct {
		name, code, text string
		config           map[string]string
		spoil            func(*sink.Record)
	}{
		{
			"NoKeyInACompactedTopic", "INVALID_RECORD", "key",
			map[string]string{"cleanup.policy": "compact"}, func(r *sink.Record) { r.Key = nil },
		},
		{
			"FromTheFuture", "INVALID_TIMESTAMP", "imestamp",
			nil, func(r *sink.Record) { r.Timestamp += int64(48 * time.Hour / time.Millisecond) },
		},
	} {
		t.Run(refusal.name, func(t *testing.T) {
			topic := c.Topic(t, "guilty", 1, refusal.config)
			d := newDriver(t, c.Addrs, nil)
			wantAccepted(t, deliver(t, d, newBatch(d, topic, 0, "a")), 0)
			b := newBatch(d, topic, 0, "b", "BAD", "c", "BAD", "d")
			refusal.spoil(b.Records[1])
			refusal.spoil(b.Records[3])
			o := send(t, d, b)
			wantVerdict(t, o, sink.Refused)
			if len(o.Guilty) != 2 || o.Guilty[0] != 1 || o.Guilty[1] != 3 {
				t.Fatalf("guilty: got %v, want records 1 and 3", o.Guilty)
			}
			if r := o.Reasons[1]; r.Code != refusal.code || !strings.Contains(r.Text, refusal.text) {
				t.Errorf("reason: got %v, want %s with a text about %q", r, refusal.code, refusal.text)
			}
			wantAccepted(t, send(t, d, newBatch(d, topic, 0, "b", "c", "d")), 1)
			if got := values(t, c.Addrs, topic); got != "a b c d" {
				t.Errorf("topic: got %s, want a b c d", got)
			}
			if got := d.Stats(); got.ProducerResets != 0 {
				t.Errorf("stats: got %+v, want no resets", got)
			}
		})
	}
}

// Breaks when our count of bytes is not the broker's: one too many would be refused by it, one too few sent without
// success. Seen to fail with a record counted one byte too small, and one too large.
func TestKafkaCountsBytesAsWeDo(t *testing.T) {
	c := harness.Kafka(t)
	topic := c.Topic(t, "limit", 1, map[string]string{configLimit: "2000"})
	d := newDriver(t, c.Addrs, nil)
	awaitTopic(t, d, topic)
	wantAccepted(t, deliver(t, d, sized(t, d, topic, 2000)), 0)
	var o sink.Outcome
	for before, ctx := d.Stats().Requests, testContext(t); d.Stats().Requests == before; {
		if ctx.Err() != nil {
			t.Fatal("requests: got none, want the broker asked to take the record")
		}
		d.stale(topic, 4000) // so that it is asked, unless the answer to an earlier question about the limit comes just now
		o = send(t, d, sized(t, d, topic, 2001))
		wantVerdict(t, o, sink.Refused)
	}
	if text := o.Reasons[0].Text; !strings.Contains(text, "2001") || !strings.Contains(text, "2000") {
		t.Errorf("reason: got %q, want size and limit", text)
	}
}

// Breaks when the sequence does not go on at 0 behind the largest, as brokers expect. Seen to fail with the numbers
// counted modulo the largest.
func TestKafkaTakesTheSequenceWrap(t *testing.T) {
	c := harness.Kafka(t)
	topic := c.Topic(t, "wrap", 1, nil)
	d := newDriver(t, c.Addrs, nil)
	if err := d.CheckProducer(testContext(t)); err != nil {
		t.Fatal(err)
	}
	p := d.partitionOf(topic, 0)
	p.next, p.producing = *d.producer.Load(), true
	p.next.Sequence = math.MaxInt32 - 1
	p.busy.Store(false)
	for i := range int64(3) {
		wantAccepted(t, deliver(t, d, newBatch(d, topic, 0, "a", "b", "c")), 3*i)
	}
	if got := p.next.Sequence; got != 7 {
		t.Errorf("next sequence: got %d, want 7", got)
	}
}

// Breaks when a batch whose answer got lost is written again after its broker was killed and came back, or when the
// sequence does not go on there. Seen to fail with a new producer id for each resend: the batch was there twice.
func TestKafkaKnowsTheBatchAgainAfterAKill(t *testing.T) {
	harness.Full(t)
	c := harness.NewOwnKafka(t, harness.KafkaConfig{})
	topic := c.Topic(t, "restart", 1, nil)
	kind := cutproxy.Pass
	proxy := cutproxy.New(func(r cutproxy.Request) cutproxy.Action {
		if r.APIKey == 0 {
			return cutproxy.Action{Kind: kind}
		}
		return cutproxy.Action{}
	})
	t.Cleanup(func() { _ = proxy.Close() })
	d := newDriver(t, c.Addrs, func(c *Config) { c.Dial = proxy.Dial })
	wantAccepted(t, deliver(t, d, newBatch(d, topic, 0, "a")), 0)
	node := d.Node(topic, 0)
	kind = cutproxy.AfterDelivery // no request is under way
	b := newBatch(d, topic, 0, "b", "c")
	wantVerdict(t, send(t, d, b), sink.Unknown)
	kind = cutproxy.Pass
	c.Nodes[0].Kill9()
	d.Produce(testContext(t), node, []*sink.Batch{b})
	wantVerdict(t, b.Outcome, sink.Unknown)
	c.Nodes[0].Start(t)
	wantAccepted(t, deliver(t, d, b), 1)
	wantAccepted(t, send(t, d, newBatch(d, topic, 0, "d")), 3)
	if got := values(t, c.Addrs, topic); got != "a b c d" {
		t.Errorf("topic: got %s, want a b c d", got)
	}
	if got := d.Stats(); got.ProducerResets != 0 || got.PossibleDuplicates != 0 {
		t.Errorf("stats: got %+v, want no resets and no possible duplicates", got)
	}
}
