package brokers_test

import (
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// inserted are rows whose payloads say when they were made, over 1,000 keys.
const inserted = `INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type, payload)
	SELECT gen_random_uuid(), 'order', 'key-' || i % 1000, 'changed',
		jsonb_build_object('n', i, 'filler', repeat('x', 250))
	FROM generate_series($1::int, $2::int) i`

// BenchmarkWebhooks is a whole relay, a process, between Postgres and a receiver in this one that answers at once. It
// reports events per second, and how long it takes from the begin of a commit to the receiver, at 200 events a second.
//
//	go test -run '^$' -bench Webhooks -benchtime 100000x ./test/brokers
func BenchmarkWebhooks(b *testing.B) {
	const paced, pace = 1000, 5 * time.Millisecond
	var count atomic.Int64
	var mu sync.Mutex
	var latencies []time.Duration // guarded by mu, as committed
	var committed time.Time       // zero: not paced
	all := make(chan struct{}, 1)
	one := make(chan struct{}, 1)
	receiver := harness.NewReceiver(b, func(w http.ResponseWriter, d harness.Delivery) {
		w.WriteHeader(http.StatusOK)
		mu.Lock()
		defer mu.Unlock()
		if !committed.IsZero() {
			latencies = append(latencies, max(time.Since(committed), 0))
			one <- struct{}{}
		}
		if count.Add(1) == int64(b.N) {
			all <- struct{}{}
		}
	})
	pg := harness.Postgres(b)
	settings := harness.NewSettings(b, pg, nil).With(forWebhooks(b, receiver.Addr)...)
	delete(settings, "kafka.brokers")
	delete(settings, "outbox.columns.headers")
	relay := harness.StartRelay(b, settings)
	conn := pg.Connect(b)
	b.ResetTimer()
	for from := 1; from <= b.N; from += 500 {
		if _, err := conn.Exec(b.Context(), inserted, from, min(from+499, b.N)); err != nil {
			b.Fatal(err)
		}
	}
	<-all
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")

	ticks := time.NewTicker(pace)
	defer ticks.Stop()
	for i := range paced {
		<-ticks.C
		mu.Lock()
		committed = time.Now() // before the commit: the receiver may have it first
		mu.Unlock()
		if _, err := conn.Exec(b.Context(), inserted, b.N+i, b.N+i); err != nil {
			b.Fatal(err)
		}
		<-one
	}
	relay.Stop(b)
	slices.Sort(latencies)
	b.ReportMetric(float64(latencies[paced/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(latencies[paced*99/100].Microseconds())/1000, "p99-ms")
}

// target is a topic that a benchmark fills.
type target struct {
	count  func() int        // of its messages
	follow func(came func()) // empties it, and calls for each message from then on
}

// measure is a benchmark of a whole relay, a process, before a broker that keeps messages: how fast it works a backlog
// off, from its first message on, and how soon it is done with an event.
func measure(b *testing.B, changes []any, begin func(topic string) target) {
	const paced, pace, look = 1000, 5 * time.Millisecond, 5 * time.Millisecond
	pg := harness.Postgres(b)
	settings := harness.NewSettings(b, pg, nil).With(changes...)
	delete(settings, "kafka.brokers")
	delete(settings, "outbox.columns.headers")
	topic := begin(settings.Topic("order"))
	relay := harness.StartRelay(b, settings)
	relay.Stop(b)
	conn := pg.Connect(b)
	for from := 1; from <= b.N; from += 500 {
		if _, err := conn.Exec(b.Context(), inserted, from, min(from+499, b.N)); err != nil {
			b.Fatal(err)
		}
	}
	relay.Start(b)
	looks := time.NewTicker(look)
	defer looks.Stop()
	first, begun := 0, time.Now() // when something was there first
	for n := topic.count(); n < b.N; n = topic.count() {
		if first == 0 {
			first, begun = n, time.Now()
		}
		<-looks.C
	}
	b.ReportMetric(float64(b.N-first)/time.Since(begun).Seconds(), "events/s")

	came := make(chan time.Time, 1)
	topic.follow(func() { came <- time.Now() })
	ticks := time.NewTicker(pace)
	defer ticks.Stop()
	latencies := make([]time.Duration, 0, paced)
	for i := range paced {
		<-ticks.C
		committed := time.Now() // before the commit: the broker may have it first
		if _, err := conn.Exec(b.Context(), inserted, b.N+i+1, b.N+i+1); err != nil {
			b.Fatal(err)
		}
		latencies = append(latencies, (<-came).Sub(committed))
	}
	relay.Stop(b)
	slices.Sort(latencies)
	b.ReportMetric(float64(latencies[paced/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(latencies[paced*99/100].Microseconds())/1000, "p99-ms")
}
