package brokers_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// The only replica misses what the master acknowledges, and becomes master. Breaks it catches: an event that counts as
// published and is on one server only; one that is lost, there twice or out of order after the failover; an alarm for
// what no one was told to be published; a relay that does not say what it waits for. Seen to fail with every append
// taken for kept, and with what was not kept still taken for written.
func TestRedisFailoverLosesNothingWithMinReplicas(t *testing.T) {
	harness.Full(t)
	sinks := []string{"redis-stream", "bullmq"}
	for _, sink := range sinks[:harness.Count(t, "sinks with replicas")] {
		t.Run(sink, func(t *testing.T) {
			w := newWatched(t)
			pg := harness.Postgres(t)
			settings := scenario{settings: []any{"sink", sink, "redis.url", strings.Join(w.addresses, ","),
				"redis.sentinel.master", masterName, "redis.min_replicas", 1, "bullmq.data", "payload"}}.prepare(t, pg)
			topic := settings.Topic("order")
			read := func() []message {
				master, _ := w.master()
				c := w.connect(master)
				defer func() { _ = c.Close() }()
				if sink == "redis-stream" {
					return entriesOf(t, c, topic)
				}
				jobs := waiting(t, c, topic)
				for i := range jobs { // their data is the payload alone
					var n int
					if _, err := fmt.Sscanf(string(jobs[i].payload), `{"n": %d}`, &n); err != nil {
						t.Fatal(err)
					}
					jobs[i].id, jobs[i].key = fmt.Sprint(n), fmt.Sprint(n%keys)
				}
				return jobs
			}
			relay := harness.StartRelay(t, settings)
			conn := pg.Connect(t)
			write(t, conn, 0, 20)
			awaitPublished(t, pg, 20*rows)
			thaw := w.cutReplica()
			write(t, conn, 20, 30)
			harness.Eventually(t, time.Minute, "the master has more than counts as published", func(context.Context) string {
				if n := len(read()); n <= 20*rows {
					return fmt.Sprint(n)
				}
				return ""
			})
			harness.Eventually(t, time.Minute, "the relay says what it waits for", func(context.Context) string {
				if _, body := relay.Get(t, "/api/v1/status"); !strings.Contains(body, "redis.min_replicas is 1") {
					return body
				}
				return ""
			})
			if n := pg.Query(t, "SELECT count(*) FROM cdc_relay_journal"); n != fmt.Sprint(20*rows) {
				t.Errorf("%s events are published, want %d", n, 20*rows)
			}
			w.failOver(thaw)
			w.awaitReplica()
			awaitPublished(t, pg, 30*rows)
			write(t, conn, 30, 35)
			awaitPublished(t, pg, 35*rows)
			wantEach(t, read(), 35*rows, 0)
			if _, out, _ := relay.Run(t, "alarms", "list", "--json"); strings.Contains(out, "offsets_went_back") {
				t.Errorf("an alarm for what was never published: %s", out)
			}
			relay.Stop(t)
		})
	}
}

// BenchmarkRedisMinReplicas is a whole relay, a process, before a stream whose server has a replica: the price of
// redis.min_replicas.
//
//	go test -run '^$' -bench MinReplicas -benchtime 60000x ./test/brokers
func BenchmarkRedisMinReplicas(b *testing.B) {
	for _, replicas := range []int{0, 1} {
		b.Run(fmt.Sprint(replicas), func(b *testing.B) {
			master := harness.Redis(b)
			harness.Redis(b, append([]string{"--replicaof"}, strings.Split(master.Addr, ":")...)...)
			reader := newReader(b, master)
			harness.Eventually(b, time.Minute, "the replica follows", func(ctx context.Context) string {
				if n, err := reader.Wait(ctx, 1, time.Second).Result(); err != nil || n != 1 {
					return fmt.Sprint(n, err)
				}
				return ""
			})
			measure(b, []any{"sink", "redis-stream", "redis.url", "redis://" + master.Addr, "redis.min_replicas", replicas},
				func(topic string) target { return entryTarget(b, reader, topic) })
		})
	}
}
