package kafka

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/recordset"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// patience bounds every wait of these tests; nothing takes a fraction of it unless it is broken.
const patience = 30 * time.Second

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// newFake starts an in-process Kafka with the topics "t" (3 partitions) and "u" (2 partitions).
func newFake(t testing.TB, options ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	options = append([]kfake.Opt{kfake.NumBrokers(3), kfake.SeedTopics(3, "t"), kfake.SeedTopics(2, "u")}, options...)
	c, err := kfake.NewCluster(options...)
	if err != nil {
		t.Fatalf("start kfake: %v", err)
	}
	t.Cleanup(c.Close)
	return c
}

// newDriver makes a driver for the brokers that asks for nothing ahead; edit may change its configuration.
func newDriver(t testing.TB, brokers []string, edit func(*Config)) *Driver {
	t.Helper()
	c := Config{Brokers: brokers, lazy: true}
	if edit != nil {
		edit(&c)
	}
	d, err := New(c)
	if err != nil {
		t.Fatalf("make the driver: %v", err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close the driver: %v", err)
		}
	})
	return d
}

// await waits until the driver's news make condition true.
func await(t testing.TB, d *Driver, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		changed := d.Changed()
		if condition() {
			return
		}
		select {
		case <-changed:
		case <-deadline.C:
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

// awaitTopic waits until the driver knows the topic and a leader of each partition.
func awaitTopic(t testing.TB, d *Driver, topic string) {
	t.Helper()
	await(t, d, "leaders of "+topic, func() bool {
		n, err := d.Partitions(topic)
		for p := range int32(n) {
			if d.Node(topic, p) < 0 {
				return false
			}
		}
		return n > 0 && err == nil
	})
}

// newBatch makes a batch of records with the values.
func newBatch(d *Driver, topic string, partition int32, values ...string) *sink.Batch {
	b := &sink.Batch{Topic: topic, Partition: partition, Alone: true} // its answer may take as long as it takes
	for _, v := range values {
		r := &sink.Record{Topic: topic, Key: []byte("k"), Value: []byte(v), Timestamp: time.Now().UnixMilli()}
		b.Records = append(b.Records, r)
		b.Bytes += d.Size(r)
	}
	return b
}

// send sends the batches to the leader of the first one's partition and returns that one's outcome.
func send(t testing.TB, d *Driver, batches ...*sink.Batch) sink.Outcome {
	t.Helper()
	awaitTopic(t, d, batches[0].Topic)
	d.Produce(testContext(t), d.Node(batches[0].Topic, batches[0].Partition), batches)
	return batches[0].Outcome
}

// wantVerdict checks an outcome.
func wantVerdict(t testing.TB, o sink.Outcome, want sink.Verdict) {
	t.Helper()
	if o.Verdict != want {
		t.Fatalf("outcome: got %+v, want verdict %d", o, want)
	}
}

// wantAccepted checks that a batch was written at the offset.
func wantAccepted(t testing.TB, o sink.Outcome, offset int64) {
	t.Helper()
	if o.Verdict != sink.Accepted || o.FirstOffset != offset {
		t.Fatalf("outcome: got %+v, want accepted at offset %d", o, offset)
	}
}

// wantLog checks the values in a partition, read by another client.
func wantLog(t testing.TB, brokers []string, topic string, partition int32, want ...string) {
	t.Helper()
	var got []string
	for _, r := range readAll(t, brokers, topic) {
		if r.Partition == partition {
			got = append(got, string(r.Value))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("log of %s/%d: got %q, want %q", topic, partition, got, want)
	}
}

// newAdmin is another client's administration of the brokers.
func newAdmin(t testing.TB, brokers []string) *kadm.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatalf("make an admin client: %v", err)
	}
	t.Cleanup(client.Close)
	return kadm.NewClient(client)
}

// readAll reads a topic from its beginning to its present end with franz-go; each partition is in order.
func readAll(t testing.TB, brokers []string, topic string) []*kgo.Record {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		t.Fatalf("make a consumer: %v", err)
	}
	defer client.Close()
	ctx := testContext(t)
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatalf("list end offsets of %s: %v", topic, err)
	}
	missing := 0
	next := make(map[int32]int64)
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			missing++
		}
	})
	var all []*kgo.Record
	for missing > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("read %s: %v", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			all = append(all, r)
			next[r.Partition] = r.Offset + 1
			if end, _ := ends.Lookup(topic, r.Partition); next[r.Partition] == end.Offset {
				missing--
			}
		})
	}
	return all
}

// sent is a batch as a broker got it.
type sent struct {
	topic     string
	partition int32
	stamp     recordset.Stamp
	records   int32
	set       string // all bytes
}

// spy notes the batches of all Produce requests, and counts the other requests.
type spy struct {
	mu       sync.Mutex
	batches  []sent
	requests map[kmsg.Key]int
	metadata []*kmsg.MetadataRequest
	creating []string // the topics of CreateTopics requests
}

func newSpy(c *kfake.Cluster) *spy {
	s := &spy{requests: make(map[kmsg.Key]int)}
	c.Control(func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.requests[kmsg.Key(r.Key())]++
		switch r := r.(type) {
		case *kmsg.MetadataRequest:
			s.metadata = append(s.metadata, r)
		case *kmsg.CreateTopicsRequest:
			for _, t := range r.Topics {
				s.creating = append(s.creating, t.Topic)
			}
		case *kmsg.ProduceRequest:
			for _, t := range r.Topics {
				for _, p := range t.Partitions {
					s.batches = append(s.batches, sentOf(t.Topic, p.Partition, p.Records))
				}
			}
		}
		return nil, nil, false
	})
	return s
}

func sentOf(topic string, partition int32, set []byte) sent {
	return sent{
		topic: topic, partition: partition, set: string(set),
		stamp: recordset.Stamp{
			Producer: int64(binary.BigEndian.Uint64(set[43:])),
			Epoch:    int16(binary.BigEndian.Uint16(set[51:])),
			Sequence: int32(binary.BigEndian.Uint32(set[53:])),
		},
		records: int32(binary.BigEndian.Uint32(set[57:])),
	}
}

// produced are the batches that brokers got so far.
func (s *spy) produced() []sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.batches)
}

func (s *spy) count(k kmsg.Key) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[k]
}

// wantResentUnchanged checks that the last two batches that brokers got are the same bytes.
func (s *spy) wantResentUnchanged(t testing.TB) {
	t.Helper()
	all := s.produced()
	if n := len(all); n < 2 || all[n-1] != all[n-2] {
		t.Errorf("resent batch: got %s, want the same bytes again", describe(all))
	}
}

func describe(all []sent) string {
	var text string
	for _, b := range all {
		text += fmt.Sprintf("[%s/%d producer %d epoch %d sequence %d records %d] ", b.topic, b.partition, b.stamp.Producer,
			b.stamp.Epoch, b.stamp.Sequence, b.records)
	}
	return text
}
