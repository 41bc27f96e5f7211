package meter

import (
	"maps"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/internal/watch/health"
	"github.com/cdc-relay/cdc-relay/internal/watch/logqueue"
	"github.com/cdc-relay/cdc-relay/sink"
)

// gauges are computed when they are scraped.
func (m *Meter) gauges(f factory, o Options) {
	engine := func(pick func(sink.Status) float64) func() float64 {
		return func() float64 { return pick(m.source.Sink()) }
	}
	f.computed("outbox_in_flight_events", "Events in memory.", func() float64 { return float64(m.source.InFlight()) })
	f.computed("outbox_in_flight_bytes", "Bytes of events in memory.",
		engine(func(s sink.Status) float64 { return float64(s.Bytes) }))
	f.computed("outbox_unrecorded_events", "Events sent and not yet journaled: the most that a crash could duplicate.",
		engine(func(s sink.Status) float64 { return float64(s.Unrecorded) }))
	m.waiting(f)
	f.known("cdc_confirmed_lsn", "Confirmed position, as a number.",
		func() (float64, bool) { at := m.Confirmed(); return float64(at), at != 0 })
	f.known("cdc_received_lsn", "Highest position received from the stream, as a number.",
		func() (float64, bool) { at := m.Received(); return float64(at), at != 0 })
	f.counted("outbox_possible_duplicates_total",
		"Events that may be in a topic twice: not found when a dead process's topics were read back, or sent again in a way "+
			"that the broker cannot recognise.",
		func() float64 { return float64(m.possibleDuplicates()) })
	f.known("outbox_last_published_timestamp_seconds", "When this process had an event acknowledged last.",
		func() (float64, bool) {
			at := m.Outcomes.lastPublished.Load()
			return float64(at) / 1e6, at != 0
		})
	f.countedBy("kafka_alarms_total",
		"Alarms: records that the broker lost, offsets that went back, partitions that were added.",
		"kind", sink.Alarms, func(kind string) float64 { return float64(m.alarmsOf(kind)) })
	f.knownStates("outbox_alarms_open",
		"Alarms that no person has acknowledged (cdc-relay alarms ack), also across restarts.",
		"kind", sink.Alarms, func(kind string) (float64, bool) {
			n, known := m.source.Alarms(kind)
			return float64(n), known
		})
	f.knownStates("outbox_degraded",
		"1 for each problem although events flow.",
		"reason", o.Reasons, func(reason string) (float64, bool) {
			degraded, known := m.source.Degraded(reason)
			return indicator(degraded), known
		})
	f.known("cdc_oldest_transaction_seconds",
		"Age of the server's oldest transaction if over 10 minutes, else 0: rows published since are not marked or deleted.",
		func() (float64, bool) {
			age, known := m.source.OldestBlocker()
			return age.Seconds(), known
		})
	f.known("outbox_audited_until_seconds",
		"Age of the last clean reconcile round; before the first, how long the relay has streamed.", m.audited)
	m.log(f, o.Lines)
	f.states(roleName, roleHelp, "role", health.Roles,
		func(role string) float64 { return indicator(string(m.health.Role()) == role) })
	f.states(haltedName, haltedHelp, "code", halt.Codes(),
		func(code string) float64 { return indicator(m.health.HaltCode() == code) })
	build := definition{"cdc_relay_build_info", "gauge", "1, with the version as label.", []string{"version", "go"}}
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: build.name, Help: build.help}, build.labels)
	info.WithLabelValues(o.Version, runtime.Version()).Set(1)
	f.collector(info, build)
	f.collector(slotCollector{m}, slotRetained, slotSafe, slotStatus)
	f.collector(senderCollector{m}, senderDefinitions...)
}

const (
	roleName, roleHelp     = "cdc_relay_role", "1 for the role that the process has."
	haltedName, haltedHelp = "cdc_relay_halted", "1 while the relay is halted, for the reason's code."
)

// Halted is what a relay with the labels shows that is halted before it could be made.
func Halted(labels prometheus.Labels, code string) prometheus.Collector {
	return several{constant(roleName, roleHelp, labels, "role", string(health.Halted), 1),
		constant(haltedName, haltedHelp, labels, "code", code, 1)}
}

// Removed says when a relay with the labels was taken out of its process.
func Removed(labels prometheus.Labels, at time.Time) prometheus.Collector {
	return constant("cdc_relay_removed_timestamp_seconds", "When the relay's file was removed.", labels, "", "",
		float64(at.UnixMilli())/1000)
}

// constant is a gauge that does not change, with one label more; "": none.
func constant(name, help string, labels prometheus.Labels, label, text string, value float64) prometheus.Collector {
	labels = maps.Clone(labels)
	if label != "" {
		labels[label] = text
	}
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels},
		func() float64 { return value })
}

// several are collectors as one.
type several []prometheus.Collector

func (c several) Describe(ch chan<- *prometheus.Desc) {
	for _, one := range c {
		one.Describe(ch)
	}
}

func (c several) Collect(ch chan<- prometheus.Metric) {
	for _, one := range c {
		one.Collect(ch)
	}
}

// log counts what the log could not take.
func (m *Meter) log(f factory, lines *logqueue.Writer) {
	dropped := definition{"outbox_log_dropped_total", "counter",
		"Log lines dropped because the log was not read or not writable.", nil}
	if lines == nil {
		*f.defined = append(*f.defined, dropped)
		return
	}
	f.counted(dropped.name, dropped.help, func() float64 { return float64(lines.Dropped()) })
}

// waiting are the gauges of what waits, and of what is not known at all times.
func (m *Meter) waiting(f factory) {
	f.known("outbox_broker_available", "0 while the broker has been unreachable, or has taken nothing, for 5 s; else 1, "+
		"also while no event waits.",
		func() (float64, bool) {
			available, known := m.source.Broker()
			return indicator(available), known
		})
	f.known("outbox_mirror_lag_events", "Events journaled and not yet marked or deleted in the outbox.", m.MirrorLag)
	f.known("outbox_mirror_lag_seconds",
		"Approximate age of the oldest journaled event that is not marked or deleted; 0 if there is none.",
		m.MirrorAge)
	f.counted("outbox_marked_total", "Published rows that were marked or deleted.",
		func() float64 { return float64(m.Database.marked.Load()) })
	f.known("outbox_dlq_events", "Dead letters not replayed or discarded, counted every 10 s, or less often if a count "+
		"takes over a second.", m.OpenDead)
	f.known("outbox_backlog_gauge",
		"Committed events not yet terminal: received, spooled, parked, listed for a catch-up, and an estimate of those in "+
			"the WAL.",
		m.Backlog)
	f.known("outbox_oldest_pending_age_seconds",
		"Age by commit time of the oldest event that is not terminal: a lower bound for events in the WAL; for parked ones "+
			"since parking, in a catch-up since created_at.", m.PendingAge)
	f.known("cdc_replication_lag_seconds",
		"Age of the oldest unconfirmed transaction: a lower bound until it is received; 0 if there is none.", m.Lag)
	f.known("cdc_replication_lag_bytes", "The server's end of WAL minus the confirmed position.", m.LagBytes)
	f.known("outbox_spooled_events", "Unsettled events in cdc_relay_spool; some may be in memory, too.", m.Spooled)
	f.known("outbox_spooling", "1 while the stream is stored in cdc_relay_spool.", func() (float64, bool) {
		s, some := m.source.Session()
		return indicator(s.Spooling), some && m.MayTell()
	})
	f.known("outbox_parked_events", "Parked events.", m.Parked)
	f.known("outbox_parked_keys",
		"Held keys: of parked events, and of dead letters that are being written.", m.HeldKeys)
}

var (
	slotRetained = definition{"cdc_slot_retained_wal_bytes", "gauge", "WAL that Postgres keeps for the slot.", nil}
	slotSafe     = definition{"cdc_slot_safe_wal_bytes", "gauge",
		"WAL that can still be written before the slot may be lost; -1 without a limit.", nil}
	slotStatus = definition{"cdc_slot_status", "gauge", "1 for the slot's WAL status in pg_replication_slots.",
		[]string{"status"}}

	slotRetainedDesc, slotSafeDesc, slotStatusDesc = slotRetained.desc(), slotSafe.desc(), slotStatus.desc()
)

// walStatuses are those of pg_replication_slots.
var walStatuses = []string{"reserved", "extended", "unreserved", "lost"}

// slotCollector shows what was last read of the slot, as long as that is news and another relay does not hold the slot.
type slotCollector struct{ m *Meter }

func (slotCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- slotRetainedDesc
	ch <- slotSafeDesc
	ch <- slotStatusDesc
}

func (c slotCollector) Collect(ch chan<- prometheus.Metric) {
	s, _, fresh := c.m.Database.Slot()
	if !fresh || !s.Exists || c.m.health.Role() == health.Standby {
		return
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	gauge(slotRetainedDesc, float64(s.RetainedBytes))
	safe := -1.0
	if s.SafeWALSize != nil {
		safe = float64(*s.SafeWALSize)
	}
	gauge(slotSafeDesc, safe)
	for _, status := range walStatuses {
		gauge(slotStatusDesc, indicator(s.WALStatus == status), status)
	}
}

// indicator is 1 for true.
func indicator(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
