// Package prom exports the metrics of a consumer to Prometheus. It is separate from package inbox so that other
// programs do not link Prometheus.
//
//	metrics := prom.New()
//	c, err := inbox.New(pool, inbox.Config{…, Metrics: metrics})
//	registry.MustRegister(metrics.Of(c))
package prom

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/inbox"
)

// Metrics holds the counters of one consumer. It implements [inbox.Metrics].
type Metrics struct {
	processed   *prometheus.CounterVec
	took        *prometheus.HistogramVec
	endToEnd    prometheus.Histogram
	retried     *prometheus.CounterVec
	notFound    *prometheus.CounterVec
	redelivered prometheus.Counter
	lockWaits   prometheus.Counter
	rebalances  *prometheus.CounterVec
	lost        *prometheus.CounterVec
}

var seconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// New returns the counters of one consumer.
func New() *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return &Metrics{
		processed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "consumer_events_processed_total",
			Help: "Events decided: done, duplicate, ignored (no handler), dead.",
		}, []string{"status", "type"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "consumer_process_duration_seconds", Help: "Time in a handler whose effect was committed.", Buckets: seconds,
		}, []string{"type"}),
		endToEnd: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "consumer_end_to_end_seconds", Help: "From the event's created_at to the commit of its effect.",
			Buckets: seconds,
		}),
		retried: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "consumer_retry_attempts_total", Help: "Attempts that failed and are followed by another one.",
		}, []string{"type"}),
		notFound: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "consumer_handler_not_found_total", Help: "Events of types without a handler; from the 51st type on: unknown.",
		}, []string{"type"}),
		redelivered: counter("consumer_redelivered_total", "Events that came again after they were decided."),
		lockWaits:   counter("consumer_lock_waits_total", "Transactions that gave way to another one's lock."),
		rebalances: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "consumer_rebalances_total", Help: "Changes of this process's partitions.",
		}, []string{"kind"}),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "consumer_records_lost_total", Help: "Records that the topic lost before they were read, at most.",
		}, []string{"topic", "partition"}),
	}
}

// Processed implements [inbox.Metrics].
func (m *Metrics) Processed(status, eventType string) {
	m.processed.WithLabelValues(status, eventType).Inc()
}

// Took implements [inbox.Metrics].
func (m *Metrics) Took(eventType string, d time.Duration) {
	m.took.WithLabelValues(eventType).Observe(d.Seconds())
}

// EndToEnd implements [inbox.Metrics].
func (m *Metrics) EndToEnd(d time.Duration) { m.endToEnd.Observe(d.Seconds()) }

// Retried implements [inbox.Metrics].
func (m *Metrics) Retried(eventType string) { m.retried.WithLabelValues(eventType).Inc() }

// HandlerNotFound implements [inbox.Metrics].
func (m *Metrics) HandlerNotFound() { m.notFound.WithLabelValues("unknown").Inc() }

// HandlerNotFoundFor implements [inbox.NotFoundMetrics].
func (m *Metrics) HandlerNotFoundFor(eventType string) { m.notFound.WithLabelValues(eventType).Inc() }

// Redelivered implements [inbox.Metrics].
func (m *Metrics) Redelivered() { m.redelivered.Inc() }

// LockWait implements [inbox.Metrics].
func (m *Metrics) LockWait() { m.lockWaits.Inc() }

// Rebalanced implements [inbox.Metrics].
func (m *Metrics) Rebalanced(kind string) { m.rebalances.WithLabelValues(kind).Inc() }

// RecordsLost implements [inbox.LossMetrics].
func (m *Metrics) RecordsLost(topic string, partition int32, n int64) {
	m.lost.WithLabelValues(topic, strconv.Itoa(int(partition))).Add(float64(n))
}

// Of returns a collector of these counters, and of the consumer's status at the time of a scrape.
func (m *Metrics) Of(c *inbox.Consumer) prometheus.Collector { return &collector{m, c} }

type collector struct {
	*Metrics
	consumer *inbox.Consumer
}

func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	inflight  = gauge("consumer_inflight", "Transactions that run now.")
	workers   = gauge("consumer_max_inflight", "Transactions that can run at once.")
	lag       = gauge("broker_consumer_lag", "From what is decided to the partition's end.", "topic", "partition")
	lagMax    = gauge("broker_consumer_lag_max", "The greatest broker_consumer_lag of this process.")
	oldest    = gauge("consumer_oldest_unhandled_age_seconds", "Age of the oldest undecided record in memory; 0: none.")
	last      = gauge("consumer_last_processed_timestamp_seconds", "When an event was decided last; 0: not yet.")
	parked    = gauge("consumer_parked_events", "Events that wait in the database, of all processes.")
	keys      = gauge("consumer_parked_keys", "Keys that wait in the database, of all processes.")
	dead      = gauge("consumer_dead_letters_open", "Dead letters not yet replayed or discarded.")
	breaker   = gauge("consumer_breaker_open", "1: a dependency of handlers is unavailable, only probes run.")
	heartbeat = gauge("consumer_heartbeat_age_seconds", "Since the group's coordinator has answered last.")
)

func (c *collector) counters() []prometheus.Collector {
	return []prometheus.Collector{
		c.processed, c.took, c.endToEnd, c.retried, c.notFound, c.redelivered, c.lockWaits, c.rebalances, c.lost,
	}
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, counter := range c.counters() {
		counter.Describe(to)
	}
	for _, d := range []*prometheus.Desc{
		inflight, workers, lag, lagMax, oldest, last, parked, keys, dead, breaker, heartbeat,
	} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(to chan<- prometheus.Metric) {
	for _, counter := range c.counters() {
		counter.Collect(to)
	}
	st := c.consumer.Status()
	set := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for _, p := range st.Partitions {
		if p.LagKnown {
			set(lag, float64(p.Lag), p.Topic, strconv.Itoa(int(p.Partition)))
		}
	}
	if st.LagKnown { // what is not known is absent
		set(lagMax, float64(st.LagMax))
	}
	set(inflight, float64(st.Inflight))
	set(workers, float64(st.Workers))
	if len(st.Partitions) > 0 {
		set(oldest, st.OldestUnhandled.Seconds())
	}
	if st.LastProcessed.IsZero() {
		set(last, 0)
	} else {
		set(last, float64(st.LastProcessed.UnixMilli())/1000)
	}
	if st.CountsKnown {
		set(parked, float64(st.ParkedEvents))
		set(keys, float64(st.ParkedKeys))
		set(dead, float64(st.DeadLettersOpen))
	}
	if st.HeartbeatAge > 0 {
		set(heartbeat, st.HeartbeatAge.Seconds())
	}
	open := 0.0
	if st.BreakerOpen {
		open = 1
	}
	set(breaker, open)
}
