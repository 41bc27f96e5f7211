package meter

import (
	"github.com/prometheus/client_golang/prometheus"
)

// aliases are figures under the names that dashboards of hand-written relays use.
func (m *Meter) aliases(f factory, wanted bool) {
	const (
		pending     = "outbox_pending_total"
		pendingHelp = "outbox_backlog_gauge under another name; only with metrics.aliases."
	)
	latency := definition{"outbox_dispatch_latency_ms", "histogram",
		"outbox_publish_latency_seconds in milliseconds; only with metrics.aliases.", nil}
	if !wanted {
		*f.defined = append(*f.defined, definition{pending, "gauge", pendingHelp, nil}, latency)
		return
	}
	f.known(pending, pendingHelp, m.Backlog)
	f.collector(inMilliseconds{m.Outcomes.publishLatency, latency.desc()}, latency)
}

// inMilliseconds is a latency in another unit, with classic buckets only.
type inMilliseconds struct {
	of   *latency
	desc *prometheus.Desc
}

func (l inMilliseconds) Describe(ch chan<- *prometheus.Desc) { ch <- l.desc }

func (l inMilliseconds) Collect(ch chan<- prometheus.Metric) {
	const perSecond = 1000
	l.of.mu.Lock()
	sum := l.of.sum
	counts := append([]uint64(nil), l.of.classic...)
	l.of.mu.Unlock()
	total, buckets := uint64(0), make(map[float64]uint64, len(l.of.upper))
	for i, upper := range l.of.upper {
		total += counts[i]
		buckets[upper*perSecond] = total
	}
	total += counts[len(l.of.upper)]
	ch <- prometheus.MustNewConstHistogram(l.desc, total, sum*perSecond, buckets)
}
