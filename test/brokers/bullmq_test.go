package brokers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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

// job is what a worker had of a job.
type job struct {
	Queue string
	Data  struct {
		ID          string
		AggregateID string `json:"aggregate_id"`
		Payload     json.RawMessage
		Headers     map[string]string
	}
}

// jobs are what the worker has had of the queue so far.
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
		found = append(found, message{j.Data.ID, j.Data.AggregateID, j.Data.Payload})
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
			proxy := newProxy(t, server.Addr)
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
	server := harness.Redis(t)
	var w *worker
	judgeFrozen(t, scenario{
		settings: forBullMQ(server.Addr, "bullmq"),
		begin:    func(topic string) { w = newWorker(t, server, "bullmq", topic); w.script.Start() },
		read:     func(topic string) []message { return worked(w.all(newReader(t, server), topic)) },
	})
}

// One queue's key is something else at first, and one event is too large. Breaks it catches: a queue in trouble that
// holds up another; parked events that come out of order, or not; a dead letter that cannot be sent again. Seen to fail
// with WRONGTYPE the cluster's trouble.
func TestBullMQParksRefusesAndReplays(t *testing.T) {
	const n, poisoned = 200, 70 // of each type, 40 of a key
	server := harness.Redis(t)
	reader := newReader(t, server)
	pg := harness.Postgres(t)
	settings := harness.NewSettings(t, pg, nil).With(forBullMQ(server.Addr, "bullmq")...).
		With("limits.max_event_bytes", "4KiB")
	delete(settings, "kafka.brokers")
	delete(settings, "outbox.columns.headers")
	order, invoice := settings.Topic("order"), settings.Topic("invoice")
	if err := reader.Set(t.Context(), "bull:"+invoice+":wait", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	w := newWorker(t, server, "bullmq", order, invoice)
	relay := harness.StartRelay(t, settings)
	conn := pg.Connect(t)
	commit := func(from, to int) {
		for number := from; number <= to; number++ {
			if _, err := conn.Exec(t.Context(), `INSERT INTO outbox_events
				(id, aggregate_type, aggregate_id, event_type, payload)
				SELECT gen_random_uuid(), kind, 'key-' || $1 % 5, 'changed', jsonb_build_object('n', $1::int, 'filler',
					CASE WHEN kind = 'order' AND $1 = $2 THEN repeat('x', 10000) ELSE '' END)
				FROM unnest(ARRAY['order', 'invoice']) kind`, number, poisoned); err != nil {
				t.Fatal(err)
			}
		}
	}
	commit(1, n/2)
	awaitPublished(t, pg, n/2-1) // of order, but the one that is too large
	harness.Eventually(t, time.Minute, "events of the queue in trouble are parked", func(ctx context.Context) string {
		parked, err := relay.AskMetric(ctx, "outbox_parked_events")
		if err != nil || parked < n/4 { // the first of each lane go on being tried
			return fmt.Sprint(parked, err)
		}
		return ""
	})
	if code, out, stderr := relay.Run(t, "dlq", "list"); code != 0 || !strings.Contains(out, "TOO_LARGE") {
		t.Errorf("dlq list: exit %d, %s%s; want the event that is too large", code, out, stderr)
	}
	if err := reader.Del(t.Context(), "bull:"+invoice+":wait").Err(); err != nil {
		t.Fatal(err)
	}
	w.script.Start()
	commit(n/2+1, n)
	awaitPublished(t, pg, 2*n-1)
	relay.Stop(t)
	relay = harness.StartRelay(t, settings.With("limits.max_event_bytes", "1MiB"))
	if code, _, stderr := relay.Run(t, "dlq", "replay", "--all", "--timeout", "30s"); code != 0 {
		t.Fatalf("replay: exit %d, %s", code, stderr)
	}
	awaitPublished(t, pg, 2*n)
	relay.Stop(t)
	for _, queue := range []string{order, invoice} {
		all := w.all(reader, queue)
		last := map[string]int{}
		for i, j := range all {
			var body struct{ N int }
			if err := json.Unmarshal(j.Data.Payload, &body); err != nil {
				t.Fatal(err)
			}
			replayed := j.Data.Headers["x-outbox-replay"] == "1"
			if wanted := queue == order && body.N == poisoned; replayed != wanted || wanted && i != len(all)-1 {
				t.Errorf("%s: event %d is job %d of %d, replayed: %v", queue, body.N, i+1, len(all), replayed)
			}
			if key := j.Data.AggregateID; body.N <= last[key] && !replayed {
				t.Errorf("%s, %s: got event %d behind %d", queue, key, body.N, last[key])
			} else {
				last[key] = body.N
			}
		}
		if len(all) != n {
			t.Errorf("%s: got %d events, want %d, none twice", queue, len(all), n)
		}
	}
}

// The example's worker is killed at its work, and each job that is done comes once more under another id. Breaks it
// catches: an event that is counted twice, or not. Seen to fail with ids that nobody looks at.
func TestExampleWorkerHandlesEachEventOnce(t *testing.T) {
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

// jobTarget is a queue in which nobody works.
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
