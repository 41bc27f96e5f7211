package meter

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// An event that the driver refuses unsent was never handed to the broker. Break it catches: it counts as an attempt,
// as a request, or as a batch, alone or beside others. Seen to fail with its records counted, with its batch counted,
// and with a request of nothing.
func TestWhatIsRefusedUnsentIsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _, _ := fresh()
		broker := sinktest.NewBroker()
		broker.SetTopic("t", 2)
		broker.Answer = func(a sinktest.Attempt) sinktest.Plan {
			if string(a.Batch.Records[0].Value) == "large" {
				return sinktest.Plan{Outcome: sink.Outcome{Verdict: sink.Refused, Unsent: true, Code: "MESSAGE_TOO_LARGE",
					Reasons: []*sink.Reason{{Code: "MESSAGE_TOO_LARGE"}}}}
			}
			return sinktest.Plan{}
		}
		engine := sink.New(broker, sink.Config{Hooks: sink.Hooks{Request: m.Requests.Sent}})
		publish := func(values ...string) {
			records := make([]*sink.Record, len(values))
			for i, value := range values { // without keys: one partition after the other
				records[i] = &sink.Record{Topic: "t", Value: []byte(value)}
			}
			if _, err := engine.Submit(context.Background(), records); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		publish("large")
		publish("small", "large")
		publish("large")
		if err := engine.Close(t.Context()); err != nil {
			t.Error(err)
		}
		families, err := m.Registry().Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			for _, series := range f.GetMetric() {
				got[f.GetName()] += series.GetCounter().GetValue() + float64(series.GetHistogram().GetSampleCount())
			}
		}
		for _, name := range []string{
			"outbox_publish_attempts_total", "kafka_produce_requests_total", "kafka_produce_seconds",
			"kafka_produce_batch_records",
		} {
			if got[name] != 1 {
				t.Errorf("%s: got %v, want 1", name, got[name])
			}
		}
	})
}
