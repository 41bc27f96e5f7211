package rabbitmq_test

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// BenchmarkStream is the engine with the driver before one stream.
//
//	go test -run '^$' -bench Stream -benchtime 500000x ./sink/rabbitmq
func BenchmarkStream(b *testing.B) {
	bed := newStreamBed(b)
	topic := bed.topic(b)
	c := bed.config()
	c.URL = "rabbitmq-stream://guest:guest@" + bed.server.StreamAddr
	f := sinktest.NewFlow(b, newStream(b, c))
	events := sinktest.Events(topic, 0, b.N)
	for _, r := range events {
		r.Value = append(r.Value, make([]byte, 291)...) // 300 bytes
	}
	b.ReportAllocs()
	b.ResetTimer()
	f.Send(events)
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
