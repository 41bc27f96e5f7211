package brokers_test

import (
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cdc-relay/cdc-relay/test/cutproxy"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// stage starts the broker of a sink, as durable as it is used: everysec for Redis, quorum queues.
func stage(t *testing.T, sink string) side {
	t.Helper()
	switch sink {
	case "nats":
		return natsStage(t)
	case "redis-stream", "bullmq":
		return redisStage(t, sink)
	case "rabbitmq", "rabbitmq-stream":
		return rabbitStage(t, sink)
	case "sqs":
		return sqsStage(t)
	}
	r := &receiverTarget{}
	receiver := harness.NewReceiver(t, r.take)
	s := oneAddress(t, receiver.Addr)
	s.settings = func(addr string) []any { return forWebhooks(t, addr) }
	s.begin, s.target = func(string) {}, r.target
	s.read = func(topic string) (found []message) {
		for _, d := range receiver.Deliveries("/hooks/" + topic) {
			found = append(found, message{payload: d.Body})
		}
		return found
	}
	return s
}

// oneAddress is a broker that the relay and the loop connect to at the same address.
func oneAddress(t *testing.T, addr string) side {
	t.Helper()
	p := cutproxy.StartPlain(t, addr)
	return side{addr: p.Addr, direct: addr, proxies: []*cutproxy.Plain{p}, relayAddr: [2]string{p.Addr, addr}}
}

func natsStage(t *testing.T) side {
	t.Helper()
	server := harness.NATS(t)
	s := oneAddress(t, server.Addr)
	nc := natsReader(t, server.URL)
	name := map[string]string{}
	s.settings = func(addr string) []any { return []any{"sink", "nats", "nats.url", "nats://" + addr} }
	s.begin = func(topic string) {
		name[topic] = harness.Unique(t, "stream")
		if err := makeNATSStream(t.Context(), nc, name[topic], topic, 1, false); err != nil {
			t.Fatal(err)
		}
	}
	s.read = func(topic string) []message { return messagesOf(t, nc, topic) }
	s.target = func(topic string) target { return natsTarget(t, nc, name[topic], topic) }
	return s
}

func redisStage(t *testing.T, sink string) side {
	t.Helper()
	server := harness.Redis(t)
	reader := newReader(t, server)
	s := oneAddress(t, server.Addr)
	s.begin = func(string) {}
	if sink == "bullmq" {
		s.settings = func(addr string) []any { // the loop makes the job's data
			return []any{"sink", "bullmq", "redis.url", "redis://" + addr, "bullmq.data", "payload"}
		}
		s.target = func(topic string) target { return jobTarget(t, reader, topic) }
		s.read = func(topic string) []message { return waiting(t, reader, topic) }
		return s
	}
	s.settings = func(addr string) []any { return []any{"sink", "redis-stream", "redis.url", "redis://" + addr} }
	s.read = func(topic string) []message { return entriesOf(t, reader, topic) }
	s.readDebezium = func(topic string) []message { return entriesWith(t, reader, topic, "value") } // extended format
	s.target = func(topic string) target { return entryTarget(t, reader, topic) }
	return s
}

// entryTarget is a stream of Redis.
func entryTarget(b testing.TB, reader *redis.Client, topic string) target {
	return target{
		count: func() int { return int(reader.XLen(b.Context(), topic).Val()) },
		follow: func(came func()) {
			last := "0"
			if newest := reader.XRevRangeN(b.Context(), topic, "+", "-", 1).Val(); len(newest) > 0 {
				last = newest[0].ID
			}
			go func() {
				for b.Context().Err() == nil {
					streams, _ := reader.XRead(b.Context(), &redis.XReadArgs{Streams: []string{topic, last},
						Block: time.Second}).Result()
					for _, stream := range streams {
						for _, e := range stream.Messages {
							last = e.ID
							came()
						}
					}
				}
			}()
		},
	}
}

// waiting are the jobs that wait in the queue.
func waiting(t *testing.T, c *redis.Client, queue string) (found []message) {
	t.Helper()
	ids, err := c.LRange(t.Context(), "bull:"+queue+":wait", 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(ids)
	for _, id := range ids {
		data, err := c.HGet(t.Context(), "bull:"+queue+":"+id, "data").Result()
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, message{payload: []byte(data)})
	}
	return found
}

func rabbitStage(t *testing.T, sink string) side {
	t.Helper()
	server := harness.RabbitMQ(t)
	s := oneAddress(t, server.Addr)
	s.settings = forRabbitMQ
	s.begin = func(topic string) { exchanges(t, server, topic) }
	s.read = func(topic string) []message { return queued(drained(t, server, topic)) }
	s.target = func(topic string) target { return queueTarget(t, channelOf(t, server), topic) }
	if sink == "rabbitmq-stream" {
		p := cutproxy.StartPlain(t, server.StreamAddr)
		s.proxies = append(s.proxies, p)
		s.relayAddr = [2]string{p.Addr, server.StreamAddr}
		s.settings = forStreams
		s.begin = func(topic string) { makeStream(t, server, topic) }
		s.read = func(topic string) []message { return streamed(t, server, topic) }
		s.target = func(topic string) target { return streamTarget(t, channelOf(t, server), topic) }
	}
	return s
}

// receiverTarget counts what a receiver gets.
type receiverTarget struct {
	mu   sync.Mutex
	n    int
	came func() // guarded by mu
}

func (r *receiverTarget) take(w http.ResponseWriter, _ harness.Delivery) {
	w.WriteHeader(http.StatusOK)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	if r.came != nil {
		r.came()
	}
}

func (r *receiverTarget) target(string) target {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n, r.came = 0, nil
	return target{
		count: func() int {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.n
		},
		follow: func(came func()) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.came = came
		},
	}
}
