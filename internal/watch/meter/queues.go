package meter

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/internal/watch/health"
	"github.com/cdc-relay/cdc-relay/sink"
)

var queueDefinitions = []definition{
	{"mq_queue_messages", "gauge",
		"Ready messages in the queue of a consumer of rabbitmq.consumers, without unacknowledged ones.",
		[]string{"consumer"}},
	{"mq_queue_consumers", "gauge", "Programs that read the consumer's queue.",
		[]string{"consumer"}},
	{"mq_retry_messages", "gauge", "Messages in the consumer's retry queues.",
		[]string{"consumer"}},
	{"mq_dlq_total", "gauge", "Messages in the consumer's dead-letter queue; falls when someone removes them.",
		[]string{"consumer"}},
}

// queueCollector shows what waits for consumers behind the broker. A standby shows nothing: the sum over all processes
// is right.
type queueCollector struct {
	watcher sink.QueueWatcher
	health  *health.State
	descs   []*prometheus.Desc
}

func (m *Meter) queues(f factory, driver sink.Driver) {
	watcher, can := driver.(sink.QueueWatcher)
	if !can {
		*f.defined = append(*f.defined, queueDefinitions...)
		return
	}
	c := queueCollector{watcher: watcher, health: m.health}
	for _, d := range queueDefinitions {
		c.descs = append(c.descs, d.desc())
	}
	f.collector(c, queueDefinitions...)
}

func (c queueCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

func (c queueCollector) Collect(ch chan<- prometheus.Metric) {
	if c.health.Role() == health.Standby {
		return
	}
	for _, q := range c.watcher.Queues() {
		for i, n := range []*int64{q.Messages, q.Consumers, q.Retrying, q.Dead} {
			if n != nil {
				ch <- prometheus.MustNewConstMetric(c.descs[i], prometheus.GaugeValue, float64(*n), q.Consumer)
			}
		}
	}
}
