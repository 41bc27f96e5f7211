package meter

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/sink"
)

// Requests counts what is sent to brokers. The sink calls Sent from the goroutine of any broker.
type Requests struct {
	attempts, retries, ok prometheus.Counter
	byCode                *prometheus.CounterVec
	batch, seconds        prometheus.Histogram
}

func (r *Requests) define(f factory) {
	r.attempts = f.counter("outbox_publish_attempts_total", "Events handed to the broker, tries included.")
	r.retries = f.counter("outbox_retry_total", "Attempts to publish an event after the first.")
	r.byCode = f.counters("kafka_produce_requests_total",
		"Produce requests by outcome.", "code",
		troubleCode(sink.PartitionTrouble), troubleCode(sink.TopicTrouble), troubleCode(sink.ConfigurationTrouble),
		troubleCode(sink.ClusterTrouble))
	r.ok = r.byCode.WithLabelValues("ok")
	r.batch = f.histogram("kafka_produce_batch_records", "Records in a batch.", prometheus.ExponentialBuckets(1, 4, 8))
	r.seconds = f.histogram("kafka_produce_seconds", "Duration of a produce request.", latencyBuckets)
}

// Sent counts a request; see sink.Hooks.
func (r *Requests) Sent(q sink.Request) {
	if q.Records == 0 {
		return // all that it was to hold was refused before it was sent
	}
	r.seconds.Observe(q.Took.Seconds())
	r.attempts.Add(float64(q.Records))
	r.retries.Add(float64(q.Resent))
	var codes []string // each once; usually none
	for _, b := range q.Batches {
		if b.Outcome.Unsent {
			continue
		}
		r.batch.Observe(float64(len(b.Records)))
		if code := codeOf(&b.Outcome); code != "" && !slices.Contains(codes, code) {
			codes = append(codes, code)
			r.byCode.WithLabelValues(code).Inc()
		}
	}
	if len(codes) == 0 {
		r.ok.Inc()
	}
}

// codeOf is the label for an outcome, empty when the batch was accepted.
func codeOf(o *sink.Outcome) string {
	switch {
	case o.Verdict == sink.Accepted:
		return ""
	case o.Code != "":
		return o.Code
	case o.Verdict == sink.Refused:
		return "refused"
	case o.Alone:
		return "slow"
	}
	return troubleCode(o.Trouble)
}

func troubleCode(t sink.Trouble) string {
	switch t {
	case sink.PartitionTrouble:
		return "partition"
	case sink.TopicTrouble:
		return "topic"
	case sink.ConfigurationTrouble:
		return "configuration"
	}
	return "cluster"
}
