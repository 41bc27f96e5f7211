package kafka

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// cpuTime is the processor time of this process so far.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkEngineOnKafka sends records of about 310 bytes through the engine to a real broker as fast as it takes them.
// It reports records per second and this process's processor seconds per million records.
//
//	CDC_RELAY_TEST_KAFKA=host:port go test -run '^$' -bench EngineOnKafka -benchtime 1000000x ./sink/kafka
func BenchmarkEngineOnKafka(b *testing.B) {
	if testing.Short() || os.Getenv("CI") == "true" {
		b.Skip("left out: it loads a broker")
	}
	c := harness.Kafka(b)
	topic := c.Topic(b, "bench", 12, nil)
	d, err := New(Config{Brokers: c.Addrs})
	if err != nil {
		b.Fatal(err)
	}
	awaitTopic(b, d, topic)
	e := sink.New(d, sink.Config{})
	ctx := context.Background()
	free := make(chan *sink.Record, 40_000) // fewer than the window holds, so that Submit never waits for itself
	for range cap(free) {
		free <- &sink.Record{}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var batch []*sink.Record
		for {
			var err error
			if batch, err = e.Results(ctx, batch[:0]); err != nil {
				return
			}
			e.Settled(batch)
			for _, r := range batch {
				free <- r
			}
		}
	}()
	keys := make([][]byte, 1000)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "018f3a5e-0000-7000-8000-%012d", i)
	}
	value := make([]byte, 260)
	cpu := cpuTime(b)
	b.ResetTimer()
	batch := make([]*sink.Record, 0, 500)
	for i := range b.N {
		r := <-free
		*r = sink.Record{Topic: topic, Key: keys[i%len(keys)], Value: value, Headers: outbox.Headers{},
			Timestamp: time.Now().UnixMilli(), Cost: 400}
		batch = append(batch, r)
		if len(batch) == cap(batch) || i == b.N-1 || len(free) == 0 {
			if _, err := e.Submit(ctx, batch); err != nil {
				b.Fatal(err)
			}
			batch = batch[:0]
		}
	}
	for range cap(free) {
		<-free
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric((cpuTime(b)-cpu).Seconds()*1e6/float64(b.N), "cpu-s/M")
	if err := e.Close(ctx); err != nil {
		b.Fatal(err)
	}
	<-done
}
