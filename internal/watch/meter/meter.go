// Package meter measures a relay: it counts what happens to events, keeps what was read of the database last, and
// computes figures from both when someone asks. Prometheus, the status and the console have their figures from here,
// so they are the same everywhere. It logs nothing and decides nothing; it asks the relay through [Source], and knows
// neither sessions nor terms.
//
// Its tests ask for figures; that a scrape has them is tested by package relay.
package meter

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/watch/health"
	"github.com/cdc-relay/cdc-relay/internal/watch/logqueue"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Source gives a meter the relay's values, at any time, from any goroutine.
type Source interface {
	InFlight() int // events in memory
	Parked() int64 // about
	Sink() sink.Status
	// Session returns the figures of the replication session; false if there is none.
	Session() (Session, bool)
	// Broker reports whether the broker takes events.
	Broker() (available, known bool)
	// Degraded reports whether the relay is degraded for the reason, one of Options.Reasons.
	Degraded(reason string) (degraded, known bool)
	// Alarms is how many alarms of the kind no one has acknowledged.
	Alarms(kind string) (n int, known bool)
	// OldestBlocker is for how long a transaction is open that keeps rows from being marked, 0 without one; false: not
	// known.
	OldestBlocker() (age time.Duration, known bool)
}

// Session is how far a replication session is.
type Session struct {
	Granted   outbox.LSN // where it began
	Taken     outbox.LSN // up to where the dispatcher has taken what the stream delivers
	Received  outbox.LSN
	Confirmed outbox.LSN
	Events    uint64    // received
	Oldest    time.Time // commit time of the oldest transaction that is not confirmed; zero: there is none
	Spool
}

// Spool is what of the stream is stored until it can be sent.
type Spool struct {
	Spooling     bool      // the stream is being stored
	Spooled      int64     // events
	Unread       int64     // of these, not in memory
	SpooledSince time.Time // commit time of the oldest, or one before it; zero: nothing is spooled
}

// Options configure a meter.
type Options struct {
	Service string // label of each metric
	Version string
	Topics  []string    // that are known before the first event
	Reasons []string    // for which a relay can be degraded
	Start   time.Time   // what the times of Outcomes.Acknowledged are counted from
	Started time.Time   // of the process
	Driver  sink.Driver // asked for alarms and duplicates, if it is a sink.Witness
	Health  *health.State
	Source  Source
	Lines   *logqueue.Writer // of the log; nil: what becomes of it is not known
	Aliases bool             // also show figures under the names of other relays

	// Outboxes returns the names of several outboxes by the source of their events; nil: there is one.
	Outboxes func() map[int32]string
}

// Meter holds the metrics of one process: made once, never reset. Each part says who may call it.
type Meter struct {
	Stream   Stream
	Outcomes Outcomes
	Outboxes Outboxes
	Requests Requests
	Database Database
	Pulses   Pulses

	catalog
	health  *health.State
	source  Source
	witness sink.Witness // nil: the driver tells of nothing
}

// New makes a meter, with its metrics in a registry of its own.
func New(o Options) *Meter {
	m := &Meter{catalog: newCatalog(), health: o.Health, source: o.Source}
	m.witness, _ = o.Driver.(sink.Witness)
	f := m.factory(o.Service)
	m.Stream.define(f)
	m.Requests.define(f)
	m.Outcomes.define(f, o)
	m.Outboxes.define(f, o.Outboxes)
	m.Outcomes.retries, m.Outcomes.openDead = m.Requests.retries, &m.Database.OpenDead
	m.Pulses.begin(o.Started)
	m.gauges(f, o)
	m.queues(f, o.Driver)
	m.aliases(f, o.Aliases)
	return m
}

// Forget drops what was read of the database: another relay has had the slot, and it is not this process's to tell.
func (m *Meter) Forget() {
	m.Database.OpenDead.Unread()
	m.Database.mirrorLag.Unread()
	m.Database.mirrorAge.Unread()
	m.Database.older.Store(nil)
	m.Database.sender.forget()
}

// alarmsOf counts what the driver noticed and a person must look into.
func (m *Meter) alarmsOf(kind string) (n uint64) {
	if m.witness == nil {
		return 0
	}
	for _, a := range m.witness.Alarms() {
		if a.Kind == kind {
			n += a.Count
		}
	}
	return n
}

// possibleDuplicates are those of a process that died, and what the driver counts itself.
func (m *Meter) possibleDuplicates() uint64 {
	n := m.Stream.PossibleDuplicates.Load()
	if m.witness != nil {
		n += m.witness.PossibleDuplicates()
	}
	return n
}

// Rates are events per second, over so many seconds. The listener of the API adds them.
type Rates struct {
	Seconds   float64 `json:"seconds"`
	Received  float64 `json:"received_per_second"`
	Published float64 `json:"published_per_second"`
	Settled   float64 `json:"settled_per_second"`
	Dead      float64 `json:"dead_per_second"`
	Marked    float64 `json:"marked_per_second"` // rows, or deleted
}

// Counts are totals since the start of the process, for rates and percentiles of an interval: the difference of two.
type Counts struct {
	Received  uint64 // from the stream
	Published uint64 // acknowledged by the broker
	Settled   uint64 // recorded in Postgres
	Dead      uint64 // became dead letters
	Marked    uint64 // rows of the outbox, or deleted
	Relay     LatencyCounts
	Publish   LatencyCounts
}

// Counts cost a few microseconds, whatever has happened. Any goroutine may ask.
func (m *Meter) Counts() Counts {
	c := Counts{
		Received: m.Stream.Events(), Settled: m.Outcomes.Settled(), Marked: m.Database.marked.Load(),
		Relay: m.Outcomes.relayLatency.counts(), Publish: m.Outcomes.publishLatency.counts(),
	}
	for _, n := range c.Relay {
		c.Published += n
	}
	for _, n := range vector(m.Outcomes.deaths) {
		c.Dead += n
	}
	return c
}

// Registry is where the metrics are.
func (m *Meter) Registry() *prometheus.Registry { return m.registry }
