package inbox

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox/internal/lanes"
)

// BenchmarkOverhead measures what the inbox adds to a loop over records, without a database: lanes, jobs of up to a
// hundred, messages read, offsets tracked. 1,000 keys, records as the relay writes them.
func BenchmarkOverhead(b *testing.B) {
	const portion, keys = 2_000, 1_000
	at := lanes.Place{Topic: "outbox.event.order"}
	e := lanes.New(lanes.Options{
		Workers: 4, MaxBatch: defaultMaxBatch, BatchTime: defaultBatchTime, MaxEvents: defaultMaxEvents,
		MaxBytes: defaultMaxBytes,
		Breaker:  lanes.BreakerOptions{Outages: 3, Transients: 5, Deaths: 100, DeathRatio: 0.05, Window: time.Minute},
	})
	defer e.Close()
	e.Assign(at, 0, nil)
	config := Config{}
	keyOf := make([][]byte, keys)
	for n := range keyOf {
		keyOf[n] = []byte{'k', byte(n), byte(n >> 8)}
	}
	headers := []kgo.RecordHeader{
		{Key: "id", Value: []byte("019aa7e4-0000-7000-8000-000000000001")}, {Key: "event_type", Value: []byte("OrderPlaced")},
		{Key: "created_at", Value: []byte("2026-01-31T12:00:00.123456Z")},
		{Key: "x-outbox-source", Value: []byte("7301234567890123456/1/1")},
	}
	value := []byte(`{"seq": 1}`)
	b.ReportAllocs()
	for offset := int64(0); offset < int64(b.N); offset += portion {
		b.StopTimer() // records are the client's
		records := make([]*kgo.Record, portion)
		for n := range records {
			records[n] = &kgo.Record{Topic: at.Topic, Key: keyOf[(int(offset)+n)%keys], Value: value, Headers: headers,
				Offset: offset + int64(n)}
		}
		b.StartTimer()
		e.Feed(at, records, offset+portion)
		for left := portion; left > 0; {
			job, _ := e.Take()
			verdicts := make([]lanes.Verdict, len(job.Pieces))
			for i, piece := range job.Pieces {
				for _, item := range piece.Items {
					if _, err := config.read(item.Record, "topic"); err != nil {
						b.Fatal(err)
					}
				}
				verdicts[i] = lanes.Verdict{Decided: len(piece.Items), Success: true}
				left -= len(piece.Items)
			}
			e.Finish(job, verdicts, 1, time.Microsecond)
		}
	}
}
