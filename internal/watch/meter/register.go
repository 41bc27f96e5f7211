package meter

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
)

// catalog lists the registered metrics.
type catalog struct {
	registry *prometheus.Registry
	defined  []definition           // all of ours, for the page that describes them
	made     []prometheus.Collector // the same, to be registered elsewhere, too
	Leave    func()                 // takes them back from there
}

func newCatalog() catalog {
	c := catalog{registry: prometheus.NewRegistry(), Leave: func() {}}
	process := collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})
	c.registry.MustRegister(collectors.NewGoCollector(), process)
	return c
}

// factory makes metrics that carry the label service.
func (m *catalog) factory(service string) factory {
	labelled := prometheus.WrapRegistererWith(prometheus.Labels{"service": service}, m.registry)
	return factory{recorder{labelled, &m.made}, &m.defined}
}

// definition is one metric as docs/metrics.md describes it. The label service, which all have, is not in labels.
type definition struct {
	name, kind, help string
	labels           []string
}

func (d definition) desc() *prometheus.Desc { return prometheus.NewDesc(d.name, d.help, d.labels, nil) }

// factory defines and registers metrics in one place.
type factory struct {
	registerer prometheus.Registerer
	defined    *[]definition
}

func (f factory) define(name, kind, help string, labels ...string) {
	*f.defined = append(*f.defined, definition{name, kind, help, labels})
}

func (f factory) counter(name, help string) prometheus.Counter {
	f.define(name, "counter", help)
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	f.registerer.MustRegister(c)
	return c
}

// counters have a label. The values that are known show 0 from the start: an increase from nothing to 1 would be none
// to Prometheus.
func (f factory) counters(name, help, label string, known ...string) *prometheus.CounterVec {
	f.define(name, "counter", help, label)
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	for _, value := range known {
		c.WithLabelValues(value)
	}
	f.registerer.MustRegister(c)
	return c
}

// computed is a gauge whose value is asked for when it is scraped.
func (f factory) computed(name, help string, value func() float64) {
	f.define(name, "gauge", help)
	f.registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}

// known is computed for what is not known at all times: there is no series then, where a 0 would be taken for the
// truth.
func (f factory) known(name, help string, value func() (float64, bool)) {
	d := definition{name, "gauge", help, nil}
	f.collector(knownGauge{d.desc(), value}, d)
}

type knownGauge struct {
	desc  *prometheus.Desc
	value func() (float64, bool)
}

func (g knownGauge) Describe(ch chan<- *prometheus.Desc) { ch <- g.desc }

func (g knownGauge) Collect(ch chan<- prometheus.Metric) {
	if value, known := g.value(); known {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, value)
	}
}

// knownStates is known for gauges that differ in the value of one label.
func (f factory) knownStates(name, help, label string, values []string, value func(string) (float64, bool)) {
	d := definition{name, "gauge", help, []string{label}}
	f.collector(knownStates{d.desc(), values, value}, d)
}

type knownStates struct {
	desc   *prometheus.Desc
	values []string
	value  func(string) (float64, bool)
}

func (g knownStates) Describe(ch chan<- *prometheus.Desc) { ch <- g.desc }

func (g knownStates) Collect(ch chan<- prometheus.Metric) {
	for _, v := range g.values {
		if value, known := g.value(v); known {
			ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, value, v)
		}
	}
}

// counted is a counter that is kept elsewhere.
func (f factory) counted(name, help string, value func() float64) {
	f.define(name, "counter", help)
	f.registerer.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, value))
}

// countedBy are such counters that differ in the value of one label.
func (f factory) countedBy(name, help, label string, values []string, value func(string) float64) {
	f.define(name, "counter", help, label)
	for _, v := range values {
		f.registerer.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help,
			ConstLabels: prometheus.Labels{label: v}}, func() float64 { return value(v) }))
	}
}

// states are computed gauges that differ in the value of one label.
func (f factory) states(name, help, label string, values []string, value func(string) float64) {
	f.define(name, "gauge", help, label)
	for _, v := range values {
		f.registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help,
			ConstLabels: prometheus.Labels{label: v}}, func() float64 { return value(v) }))
	}
}

// latency is histogram for what is observed once per event.
func (f factory) latency(name, help string) *latency {
	f.define(name, "histogram", help)
	l := newLatency(name, help, latencyBuckets)
	f.registerer.MustRegister(l)
	return l
}

func (f factory) histogram(name, help string, buckets []float64) prometheus.Histogram {
	f.define(name, "histogram", help)
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour})
	f.registerer.MustRegister(h)
	return h
}

// collector registers gauges that are there at times only.
func (f factory) collector(c prometheus.Collector, defined ...definition) {
	*f.defined = append(*f.defined, defined...)
	f.registerer.MustRegister(c)
}

// recorder registers collectors and remembers them.
type recorder struct {
	prometheus.Registerer
	made *[]prometheus.Collector
}

// MustRegister registers each collector.
func (r recorder) MustRegister(collectors ...prometheus.Collector) {
	r.Registerer.MustRegister(collectors...)
	*r.made = append(*r.made, collectors...)
}

// Join registers what the relay measures with a program's registerer as well, until Leave. It registers all or nothing.
func (m *catalog) Join(with prometheus.Registerer, service string) error {
	labelled := prometheus.WrapRegistererWith(prometheus.Labels{"service": service}, with)
	m.Leave = func() {}
	for n, c := range m.made {
		err := labelled.Register(c)
		if err == nil {
			continue
		}
		for _, done := range m.made[:n] {
			labelled.Unregister(done)
		}
		if _, twice := errors.AsType[prometheus.AlreadyRegisteredError](err); twice {
			return fmt.Errorf("register the metrics of service %q: another relay of this name has them: %w", service, err)
		}
		return fmt.Errorf("register the metrics of service %q: %w", service, err)
	}
	m.Leave = func() {
		for _, c := range m.made {
			labelled.Unregister(c)
		}
	}
	return nil
}

// vector returns the counts of counters with one label.
func vector(v *prometheus.CounterVec) map[string]uint64 {
	found := make(chan prometheus.Metric, 16)
	go func() {
		v.Collect(found)
		close(found)
	}()
	counts := map[string]uint64{}
	for metric := range found {
		var m dto.Metric
		if metric.Write(&m) == nil && len(m.GetLabel()) == 1 {
			counts[m.GetLabel()[0].GetValue()] = uint64(m.GetCounter().GetValue())
		}
	}
	return counts
}
