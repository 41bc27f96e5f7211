package brokers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cdc-relay/cdc-relay/test/cutproxy"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// forBullMQ are the settings of a relay to queues. Jobs have no ids by which a library could tell that one comes again,
// and go when they are done: what comes again is seen.
func forBullMQ(addr, module string) []any {
	version := 5
	if module == "bull" {
		version = 4
	}
	return []any{"sink", "bullmq", "redis.url", "redis://" + addr, "bullmq.version", version, "bullmq.job_id", "",
		"bullmq.remove_on_complete.enabled", true}
}

// worker is a real one, of a package of test/node, that takes one job after the other.
type worker struct {
	t      *testing.T
	script *harness.Script
}

func newWorker(t *testing.T, server *harness.RedisServer, module string, queues ...string) *worker {
	t.Helper()
	_, port, err := net.SplitHostPort(server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	return &worker{t, harness.NewScript(t, "test/node/worker.js", nil, append([]string{module, port}, queues...)...)}
}

// job is a job as a worker received it.
type job struct {
	Queue string
	Data  struct {
		ID          string
		AggregateID string `json:"aggregate_id"`
		Payload     json.RawMessage
		Headers     map[string]string
	}
}

// jobs returns the worker's jobs of the queue so far.
func (w *worker) jobs(queue string) (found []job) {
	for _, line := range w.script.Lines() {
		var j job
		if err := json.Unmarshal([]byte(line), &j); err != nil {
			w.t.Fatalf("the worker says %s", line)
		}
		if j.Queue == queue {
			found = append(found, j)
		}
	}
	return found
}

// all waits until nothing waits in the queue and hands out what the worker had.
func (w *worker) all(reader *redis.Client, queue string) (found []job) {
	w.t.Helper()
	harness.Eventually(w.t, 5*time.Minute, "the worker has done what there is", func(ctx context.Context) string {
		waiting, err := reader.LLen(ctx, "bull:"+queue+":wait").Result()
		if err != nil {
			return err.Error()
		}
		active, err := reader.LLen(ctx, "bull:"+queue+":active").Result()
		if err != nil || waiting+active > 0 {
			return fmt.Sprint(waiting, active, err)
		}
		return ""
	})
	return w.jobs(queue)
}

// worked are jobs as the judge wants them.
func worked(all []job) (found []message) {
	for _, j := range all {
		found = append(found, message{id: j.Data.ID, key: j.Data.AggregateID, payload: j.Data.Payload,
			replayed: j.Data.Headers[replayHeader] == "1"})
	}
	return found
}

func newReader(t testing.TB, server *harness.RedisServer) *redis.Client {
	reader := redis.NewClient(&redis.Options{Addr: server.Addr, Protocol: 2})
	t.Cleanup(func() { _ = reader.Close() })
	return reader
}

// A worker begins when all is added: one whose server is killed does a job again by itself. Breaks it catches: an event
// lost, doubled or out of order between Postgres and a worker, whatever is killed. Seen
// to fail with the driver's Tail left out.
func TestBullMQHasEachEventOnceInOrder(t *testing.T) {
	for _, module := range []string{"bullmq", "bullmq5", "bull"} {
		t.Run(module, func(t *testing.T) {
			server := harness.Redis(t, "--appendfsync", "always")
			proxy := cutproxy.StartPlain(t, server.Addr)
			judge(t, scenario{
				settings: forBullMQ(proxy.Addr, module),
				proxy:    proxy,
				restart:  func() { server.Kill9(); server.Start(t) },
				read: func(topic string) []message {
					w := newWorker(t, server, module, topic)
					w.script.Start()
					return worked(w.all(newReader(t, server), topic))
				},
			})
		})
	}
}

// The worker takes and removes jobs all the time. Breaks it catches: what a frozen relay sends when it wakes up behind
// another that took over. Seen to fail with a script that does not compare the counter.
func TestBullMQOfAFrozenRelay(t *testing.T) {
	harness.Full(t)
	server := harness.Redis(t)
	var w *worker
	judgeFrozen(t, scenario{
		settings: forBullMQ(server.Addr, "bullmq"),
		begin:    func(topic string) { w = newWorker(t, server, "bullmq", topic); w.script.Start() },
		read:     func(topic string) []message { return worked(w.all(newReader(t, server), topic)) },
	})
}

// The example's worker is killed at its work, and each job that is done comes once more under another id. Breaks it
// catches: an event that is counted twice, or not. Seen to fail with ids that no one looks at.
func TestExampleWorkerHandlesEachEventOnce(t *testing.T) {
	harness.Full(t)
	const n = 200
	server := harness.Redis(t)
	pg := harness.Postgres(t)
	settings := harness.NewSettings(t, pg, nil).With("sink", "bullmq", "redis.url", "redis://"+server.Addr,
		"bullmq.attempts", 3)
	delete(settings, "kafka.brokers")
	delete(settings, "outbox.columns.headers")
	topic := settings.Topic("order")
	example := harness.NewScript(t, "examples/bullmq/worker.js", []string{
		"DATABASE_URL=" + pg.URL, "REDIS_URL=redis://" + server.Addr, "QUEUES=" + topic, "CONCURRENCY=4", "LOCK_MS=1000",
	})
	relay := harness.StartRelay(t, settings)
	example.Start()
	conn := pg.Connect(t)
	counted := func(want int) {
		t.Helper()
		harness.Eventually(t, time.Minute, fmt.Sprintf("%d orders are counted", want), func(ctx context.Context) string {
			got, err := pg.TryQuery(ctx, "SELECT coalesce(sum(orders), 0) FROM orders_of_customer")
			if err != nil || got != fmt.Sprint(want) {
				return fmt.Sprint(got, err, example.Lines())
			}
			return ""
		})
	}
	for i := range 4 {
		if _, err := conn.Exec(t.Context(), `INSERT INTO outbox_events
			(id, aggregate_type, aggregate_id, event_type, payload)
			SELECT gen_random_uuid(), 'order', 'key-' || i % 5, 'placed', jsonb_build_object('customer', 'c-' || i % 5)
			FROM generate_series(1, $1::int) i`, n/4); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			example.Kill9()
			example.Start()
		}
	}
	counted(n)
	_, port, _ := net.SplitHostPort(server.Addr)
	again := harness.NewScript(t, "test/node/queue.js", nil, "bullmq", port, topic, "again")
	again.Start()
	reader := newReader(t, server)
	harness.Eventually(t, time.Minute, "each job is done a second time", func(ctx context.Context) string {
		done, err := reader.ZCard(ctx, "bull:"+topic+":completed").Result()
		if err != nil || done < 2*n {
			return fmt.Sprint(done, err, again.Lines(), example.Lines())
		}
		return ""
	})
	counted(n)
	relay.Stop(t)
}

// BenchmarkBullMQ is a whole relay, a process, before one queue of BullMQ. It reports events per second, and how long
// it takes from the begin of a commit to who waits for the queue's list, at 200 events a second.
//
//	go test -run '^$' -bench BullMQ$ -benchtime 60000x ./test/brokers
func BenchmarkBullMQ(b *testing.B) {
	server := harness.Redis(b)
	reader := newReader(b, server)
	measure(b, forBullMQ(server.Addr, "bullmq"), func(topic string) target { return jobTarget(b, reader, topic) })
}

// jobTarget is a queue in which no one works.
func jobTarget(b testing.TB, reader *redis.Client, queue string) target {
	list := "bull:" + queue + ":wait"
	return target{
		count: func() int { return int(reader.LLen(b.Context(), list).Val()) },
		follow: func(came func()) {
			reader.Del(b.Context(), list)
			go func() {
				for b.Context().Err() == nil {
					if reader.BRPop(b.Context(), time.Second, list).Err() == nil {
						came()
					}
				}
			}()
		},
	}
}
