package kafka

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/cutproxy"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// newFixture makes what the conformance suite needs of a driver on the brokers, by way of a proxy that breaks things.
// Its topics have so many replicas.
func newFixture(t *testing.T, brokers []string, replicas int) sinktest.Fixture {
	var lose atomic.Int32
	var out atomic.Bool
	proxy := cutproxy.New(func(r cutproxy.Request) cutproxy.Action {
		switch {
		case out.Load():
			return cutproxy.Action{Kind: cutproxy.InRequest}
		case r.APIKey == int16(kmsg.Produce) && lose.Add(-1) >= 0:
			return cutproxy.Action{Kind: cutproxy.AfterDelivery}
		}
		return cutproxy.Action{}
	})
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Errorf("close the proxy: %v", err)
		}
	})
	d, err := New(Config{Brokers: brokers, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if out.Load() {
			return nil, errors.New("an outage of the test")
		}
		return proxy.Dial(ctx, network, address)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() }) // again; a test that is skipped has no engine to close it
	create := func(t *testing.T, name string, partitions int) {
		t.Helper()
		if err := d.CreateTopic(testContext(t), name, partitions, replicas); err != nil {
			t.Fatal(err)
		}
	}
	return sinktest.Fixture{
		Driver:       d,
		Deduplicates: true,
		Copies:       true,
		Topic: func(t *testing.T, partitions int) string {
			name := harness.Unique(t, "conformance")
			create(t, name, partitions)
			return name
		},
		Read:        func(t *testing.T, topic string) []sinktest.Message { return messages(t, brokers, topic) },
		LoseAnswers: func(n int) { lose.Store(int32(n)) },
		Outage: func() func() {
			out.Store(true)
			return func() { out.Store(false) }
		},
		Ruins: map[string]func(*testing.T, string) func(){
			"Deleted": func(t *testing.T, topic string) func() {
				if _, err := newAdmin(t, brokers).DeleteTopics(testContext(t), topic); err != nil {
					t.Fatal(err)
				}
				return func() { create(t, topic, 3) }
			},
		},
		MissingTopic: func(t *testing.T) (string, func()) {
			name := harness.Unique(t, "missing")
			return name, func() { create(t, name, 3) }
		},
	}
}

// messages reads a topic as an independent consumer sees it.
func messages(t testing.TB, brokers []string, topic string) []sinktest.Message {
	t.Helper()
	var all []sinktest.Message
	harness.Consume(t, brokers, []string{topic}, func(r *kgo.Record) {
		m := sinktest.Message{
			Topic: r.Topic, Partition: r.Partition, Offset: r.Offset,
			Key: r.Key, Value: r.Value, Timestamp: r.Timestamp.UnixMilli(),
		}
		for _, h := range r.Headers {
			m.Headers.Add(h.Key, h.Value)
		}
		all = append(all, m)
	})
	return all
}

// TestConformanceOnAFake runs the suite of all drivers on an in-process Kafka, which can move leaders. Seen to fail
// with a new producer id for each resend.
func TestConformanceOnAFake(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Fixture {
		c := newFake(t)
		f := newFixture(t, c.ListenAddrs(), 1)
		f.MoveLeader = func(t *testing.T, topic string, partition int32) {
			t.Helper()
			if err := c.MoveTopicPartition(topic, partition, (c.LeaderFor(topic, partition)+1)%3); err != nil {
				t.Fatal(err)
			}
		}
		f.Ruins["WriteDenied"] = func(_ *testing.T, topic string) func() {
			var denied atomic.Bool
			denied.Store(true)
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.TopicAuthorizationFailed, Count: -1,
				When: func(kmsg.Request) bool { return denied.Load() }})
			return func() { denied.Store(false) }
		}
		marker := []byte("a record that this broker rejects")
		f.Poison = func(topic string, key []byte) *sink.Record {
			// This broker names no records, so that the engine has to bisect.
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.InvalidRecord, Count: -1,
				When: func(r kmsg.Request) bool {
					for _, topic := range r.(*kmsg.ProduceRequest).Topics {
						for _, p := range topic.Partitions {
							if bytes.Contains(p.Records, marker) {
								return true
							}
						}
					}
					return false
				}})
			return &sink.Record{Topic: topic, Key: key, Value: marker, Cost: 100, Timestamp: time.Now().UnixMilli()}
		}
		return f
	})
}

// TestConformanceOnKafka runs the suite of all drivers on a real broker; TestThreeBrokers on three. Seen to
// fail with a new producer id for each resend.
func TestConformanceOnKafka(t *testing.T) {
	c := harness.Kafka(t)
	sinktest.Run(t, func(t *testing.T) sinktest.Fixture {
		f := newFixture(t, c.Addrs, 1)
		f.Poison = fromTheFuture
		return f
	})
}

// fromTheFuture is a record that a real broker rejects: message.timestamp.after.max.ms is an hour.
func fromTheFuture(topic string, key []byte) *sink.Record {
	return &sink.Record{
		Topic: topic, Key: key, Value: []byte("from the future"), Cost: 100, Headers: outbox.HeadersIn(nil),
		Timestamp: time.Now().Add(48 * time.Hour).UnixMilli(),
	}
}
