package relay

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/cdc-relay/cdc-relay/config"
)

// Counts are totals since the start of the process, for rates and percentiles of an interval: the difference of two.
type Counts struct {
	Received  uint64 // from the stream
	Published uint64 // acknowledged by the broker
	Settled   uint64 // recorded in Postgres
	Dead      uint64 // became dead letters
	Relay     LatencyCounts
	Publish   LatencyCounts
}

// Counts may be called at any time from any goroutine. It costs a few microseconds, whatever has happened.
func (r *Relay) Counts() Counts {
	m := r.metrics
	c := Counts{
		Received: r.seen.received.Load(), Settled: m.settledEvents.Load(),
		Relay: m.relayLatency.counts(), Publish: m.publishLatency.counts(),
	}
	for _, n := range c.Relay {
		c.Published += n
	}
	for _, n := range vector(m.deaths) {
		c.Dead += n
	}
	return c
}

// Topics are the events that the broker has acknowledged, by topic.
func (r *Relay) Topics() map[string]uint64 { return vector(r.metrics.published) }

// vector is what counters with one label count.
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

// Window is what may be in memory at once; see limits.in_flight_events and limits.in_flight_bytes.
func (r *Relay) Window() (events, bytes int) {
	return r.c.Limits.InFlightEvents, int(r.c.Limits.InFlightBytes)
}

// Settings is the configuration without its secrets.
func (r *Relay) Settings() []config.Shown { return r.c.Shown() }

// Parked is about how many events are parked.
func (r *Relay) Parked() int64 {
	if t := r.term.Load(); t != nil {
		return t.settler.Parked()
	}
	return 0
}

// OpenDead is how many dead letters nobody has replayed or discarded, as counted last.
func (r *Relay) OpenDead() int64 { return r.metrics.openDead.value.Load() }
