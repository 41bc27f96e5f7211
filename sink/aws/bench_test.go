package aws_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sink/aws"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// BenchmarkQueue is the engine with the driver before a server in this process that takes everything, after a while.
//
//	go test -run '^$' -bench Queue -benchtime 50000x ./sink/aws
func BenchmarkQueue(b *testing.B) {
	harness.AWSLogin(b)
	for _, after := range []time.Duration{0, 10 * time.Millisecond, 30 * time.Millisecond} {
		b.Run(after.String(), func(b *testing.B) { benchmarkQueue(b, after) })
	}
}

func benchmarkQueue(b *testing.B, after time.Duration) {
	var taken [11]string // answers to requests of so many entries
	for n := range taken {
		taken[n] = `{"Successful":[`
		for i := range n {
			taken[n] += fmt.Sprintf(`%s{"Id":"%d","MessageId":"m","MD5OfMessageBody":"x"}`, strings.Repeat(",", min(i, 1)), i)
		}
		taken[n] += "]}"
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		<-time.After(after)
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		if strings.HasSuffix(q.Header.Get("X-Amz-Target"), ".GetQueueUrl") {
			_, _ = io.WriteString(w, `{"QueueUrl":"http://localhost/1/q.fifo"}`)
			return
		}
		_, _ = io.WriteString(w, taken[strings.Count(string(body), `"MessageGroupId"`)])
	}))
	b.Cleanup(server.Close)
	f := sinktest.NewFlow(b, newSQS(b, aws.SQSConfig{Endpoint: server.URL,
		Headers: [4]string{"id", "event_type", "aggregate_type", "created_at"}}))
	events := sinktest.Events("order", 0, b.N)
	for i, r := range events {
		r.Key = fmt.Appendf(nil, "key-%d", i%1000)
		r.Value = append(r.Value, strings.Repeat("x", 291)...) // 300 bytes
		for _, name := range []string{
			"event_type", "aggregate_type", "created_at", "x-outbox-position", "x-outbox-epoch", // the last has no attribute
		} {
			r.Headers.Add(name, fmt.Appendf(nil, "%s-%d", name, i))
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	f.Send(events)
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
