package relay

import (
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/relay/internal/halt"
	"github.com/cdc-relay/cdc-relay/relay/internal/health"
	"github.com/cdc-relay/cdc-relay/relay/internal/message"
	"github.com/cdc-relay/cdc-relay/relay/internal/settle"
	"github.com/cdc-relay/cdc-relay/sink"
)

// latencyBuckets are the classic buckets, in seconds, of everything that an event waits for; native histograms are
// exposed beside them.
var latencyBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// metrics are what Prometheus sees. What is counted per event is one counter or histogram without labels; the counter
// per topic is looked up once per run of records of the same topic.
type metrics struct {
	registry *prometheus.Registry
	defined  []definition           // all of ours, for the page that describes them
	made     []prometheus.Collector // the same, to be registered elsewhere, too
	leave    func()                 // takes them back from there

	attempts, retries                           prometheus.Counter
	published                                   *prometheus.CounterVec
	deaths                                      *prometheus.CounterVec
	transactions, received                      prometheus.Counter
	skippedMemory, skippedJournal, skippedTopic prometheus.Counter
	uncleanStarts, headersShadowed              prometheus.Counter
	restarts                                    *prometheus.CounterVec
	recreations                                 prometheus.Counter
	reconciled                                  prometheus.Counter
	publishLatency, relayLatency                *latency
	settleSeconds, settleBatch                  prometheus.Histogram
	mirrorLag, openDead                         reading
	uncopied                                    prometheus.Counter
	produceRequests                             *prometheus.CounterVec
	produceBatch, produceSeconds                prometheus.Histogram
	produceOK                                   prometheus.Counter

	settledEvents      atomic.Uint64
	setAside           atomic.Uint64            // parks, and failed attempts of parked events, that are committed
	lastPublished      atomic.Int64             // when the broker answered for an event last, Unix microseconds; 0: never
	possibleDuplicates atomic.Uint64            // of a process that died; the driver counts its own
	slot               atomic.Pointer[slotLook] // as read last, nil before

	// Owned by the settler, which alone calls Acknowledged.
	lastTopic   string
	lastCounter prometheus.Counter
	lastRun     int       // events of that topic that are not added yet
	lastAt      time.Time // of the answer that was counted last
	lastSince   time.Duration
	lastMicros  int64
}

func newMetrics(r *Relay) *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), leave: func() {}}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	labelled := prometheus.WrapRegistererWith(prometheus.Labels{"service": r.c.Service}, m.registry)
	f := factory{recorder{labelled, &m.made}, &m.defined}

	m.attempts = f.counter("outbox_publish_attempts_total", "Events handed to the broker, tries included.")
	m.retries = f.counter("outbox_retry_total", "Attempts to publish an event after the first.")
	m.published = f.counters("outbox_published_total", "Events acknowledged by the broker.", "topic", message.FixedTopic(r.c.Message.Topic)...)
	m.deaths = f.counters("outbox_failed_permanent_total", "Events that became dead letters.", "class", string(outbox.Permanent), string(outbox.Transient))
	m.transactions = f.counter("cdc_transactions_total", "Transactions received from the stream.")
	m.received = f.counter("cdc_events_received_total", "Events received from the stream, redelivered ones included.")
	skipped := f.counters("outbox_duplicates_skipped_total", "Redelivered events that were not sent again, by what knew them: memory, journal or topic.", "by")
	m.skippedMemory, m.skippedJournal, m.skippedTopic = skipped.WithLabelValues("memory"), skipped.WithLabelValues("journal"), skipped.WithLabelValues("topic")
	m.uncleanStarts = f.counter("outbox_unclean_starts_total", "Starts after a crash: redelivered events were looked up.")
	m.headersShadowed = f.counter("outbox_headers_shadowed_total", "Headers of rows that were dropped because their name is the relay's own.")
	m.recreations = f.counter("cdc_slot_recreations_total", "Times that the slot was lost, made anew or moved by somebody else, and all began again from the table.")
	m.reconciled = f.counter("outbox_reconciled_total", "Committed rows that the stream never delivered, found by the reconciler and published late.")
	m.restarts = f.counters("cdc_stream_restarts_total", "Ends of a replication session that were followed by another.", "reason",
		restartSilent, restartServerShutdown, restartLeaseLost, restartConnection)
	m.publishLatency = f.latency("outbox_publish_latency_seconds", "From created_at to the broker's acknowledgement.")
	m.relayLatency = f.latency("outbox_relay_latency_seconds", "From receipt from the WAL to the broker's acknowledgement.")
	m.settleSeconds = f.histogram("outbox_settle_seconds", "Duration of a journal transaction.", latencyBuckets)
	m.settleBatch = f.histogram("outbox_settle_batch_size", "Events in a journal transaction.", prometheus.ExponentialBuckets(1, 4, 8))
	f.known("outbox_mirror_lag_events", "Events journaled and not yet marked or deleted in the outbox.", r.toldReading(&m.mirrorLag))
	f.known("outbox_dlq_events", "Dead letters that nobody has replayed or discarded, as counted every 10 s.", r.toldReading(&m.openDead))
	m.uncopied = f.counter("outbox_dlq_uncopied_total", "Dead letters that dlq.topic refused, even without their value; they are in the table only.")
	m.produceRequests = f.counters("kafka_produce_requests_total", "Produce requests by their outcome: ok, or the broker's name for each answer in it that was another, or whose trouble it was when it gave none.", "code",
		troubleCode(sink.PartitionTrouble), troubleCode(sink.TopicTrouble), troubleCode(sink.ConfigurationTrouble), troubleCode(sink.ClusterTrouble))
	m.produceOK = m.produceRequests.WithLabelValues("ok")
	m.produceBatch = f.histogram("kafka_produce_batch_records", "Records in a batch.", prometheus.ExponentialBuckets(1, 4, 8))
	m.produceSeconds = f.histogram("kafka_produce_seconds", "Duration of a produce request.", latencyBuckets)
	m.gauges(f, r)
	return m
}

// gauges are computed when they are scraped.
func (m *metrics) gauges(f factory, r *Relay) {
	engine := func(pick func(sink.Status) float64) func() float64 {
		return func() float64 { return pick(r.sinkStatus()) }
	}
	f.computed("outbox_in_flight_events", "Events in memory.", func() float64 { return float64(r.inFlight()) })
	f.computed("outbox_in_flight_bytes", "Bytes of events in memory.", engine(func(s sink.Status) float64 { return float64(s.Bytes) }))
	f.computed("outbox_unrecorded_events", "Events sent and not yet journaled: the most that a crash could duplicate.", engine(func(s sink.Status) float64 { return float64(s.Unrecorded) }))
	f.known("outbox_backlog_gauge", "Committed events not yet terminal: received, parked, plus an estimate of what is still in the WAL.", r.toldBacklog)
	f.known("outbox_oldest_pending_age_seconds", "Age, by commit time, of the oldest event that is not terminal: at least, for what is still in the WAL, and since they were parked for parked ones.", r.toldPendingAge)
	f.known("cdc_replication_lag_seconds", "Now minus the commit time of the oldest unconfirmed transaction, at least, while it was not received; 0 when there is none.", r.toldLagAge)
	f.known("cdc_replication_lag_bytes", "The server's end of WAL minus the confirmed position.", r.toldLagBytes)
	f.computed("cdc_confirmed_lsn", "Confirmed position, as a number.", func() float64 { return float64(r.confirmedLSN()) })
	f.computed("cdc_received_lsn", "Highest position received from the stream, as a number.", func() float64 { return float64(r.receivedLSN()) })
	f.known("outbox_parked_events", "Events stored aside for a later attempt.", r.toldParked)
	f.known("outbox_parked_keys", "Keys that are held: of parked events, and of events whose dead letter is being written.", r.toldHeld)
	f.counted("outbox_possible_duplicates_total", "Events that may be in a topic twice: written by a process that died and not found when its topics were read back, or sent again in a way that the broker cannot recognise.", func() float64 {
		n := m.possibleDuplicates.Load()
		if witness, tells := r.driver.(sink.Witness); tells {
			n += witness.PossibleDuplicates()
		}
		return float64(n)
	})
	f.known("outbox_last_published_timestamp_seconds", "When this process had an event acknowledged last; not there before the first.", func() (float64, bool) {
		at := m.lastPublished.Load()
		return float64(at) / 1e6, at != 0
	})
	f.countedBy("kafka_alarms_total", "What a person must look into: records that the broker lost, offsets that went back, partitions that were added.", "kind", sink.Alarms, func(kind string) float64 {
		return float64(r.alarmsOf(kind))
	})
	f.states("outbox_alarms_open", "Alarms that a person must look into, by kind, since the start of this process.", "kind", sink.Alarms, func(kind string) float64 {
		return float64(r.alarmsOf(kind))
	})
	f.states("outbox_degraded", "1 for what is wrong although events flow: a topic whose events are parked, marks that fail, an open alarm.", "reason", degradedReasons, func(reason string) float64 {
		return indicator(r.isDegraded(reason))
	})
	f.known("outbox_audited_until_seconds", "Age of the last reconcile round that found nothing missing; before the first, for how long the relay has streamed, halts included.", r.toldAudited)
	f.states("cdc_relay_role", "1 for the role that the process has.", "role", health.Roles, func(role string) float64 {
		return indicator(string(r.health.Role()) == role)
	})
	build := definition{"cdc_relay_build_info", "gauge", "1, with the version as label.", []string{"version", "go"}}
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: build.name, Help: build.help}, build.labels)
	info.WithLabelValues(r.version, runtime.Version()).Set(1)
	f.collector(info, build)
	f.collector(slotCollector{r}, slotRetained, slotSafe, slotStatus)
	f.states("cdc_relay_halted", "1 while the relay is halted, for the reason's code.", "code", halt.Codes(), func(code string) float64 {
		return indicator(r.health.HaltCode() == code)
	})
}

// BeginResults and EndResults stand around a run of Acknowledged: a scrape sees all of it or nothing. One goroutine at a time.
func (m *metrics) BeginResults() {
	m.relayLatency.mu.Lock()
	m.publishLatency.mu.Lock()
}

func (m *metrics) EndResults() {
	m.flush()
	m.relayLatency.mu.Unlock()
	m.publishLatency.mu.Unlock()
}

// Acknowledged counts an event that the broker has acknowledged.
func (m *metrics) Acknowledged(rec *sink.Record, d *settle.Delivery) {
	if !instrumented {
		return
	}
	if rec.Topic != m.lastTopic || m.lastCounter == nil {
		m.flush()
		m.lastTopic, m.lastCounter = rec.Topic, m.published.WithLabelValues(rec.Topic)
	}
	m.lastRun++
	if rec.At != m.lastAt { // those of one request have the same
		m.lastAt, m.lastSince, m.lastMicros = rec.At, settle.SinceStart(rec.At), rec.At.UnixMicro()
	}
	m.relayLatency.observe(m.lastSince - d.Received)
	if d.Dated {
		m.publishLatency.observe(time.Duration(m.lastMicros-d.Created) * time.Microsecond)
	}
}

func (m *metrics) flush() {
	if m.lastRun > 0 {
		m.lastCounter.Add(float64(m.lastRun))
		m.lastRun = 0
		m.lastPublished.Store(m.lastMicros)
	}
}

// Journaled counts a journal transaction.
func (m *metrics) Journaled(n int, took time.Duration) {
	m.settleSeconds.Observe(took.Seconds())
	m.settleBatch.Observe(float64(n))
	m.settledEvents.Add(uint64(n))
}

// Died counts an event that became a dead letter.
func (m *metrics) Died(class outbox.ErrorClass) {
	m.deaths.WithLabelValues(string(class)).Inc()
	m.openDead.value.Add(1) // until it is counted
	m.settledEvents.Add(1)
}

// Parked counts parks, and failed attempts of parked events, that are committed.
func (m *metrics) Parked(events int) { m.setAside.Add(uint64(events)) }

// Retried counts attempts of parked events.
func (m *metrics) Retried(attempts int) { m.retries.Add(float64(attempts)) }

// Uncopied counts a dead letter that dlq.topic refused.
func (m *metrics) Uncopied() { m.uncopied.Inc() }

// request is the sink's hook, once per request.
func (m *metrics) request(q sink.Request) {
	if q.Records == 0 {
		return // all that it was to hold was refused before it was sent
	}
	m.produceSeconds.Observe(q.Took.Seconds())
	m.attempts.Add(float64(q.Records))
	m.retries.Add(float64(q.Resent))
	var codes []string // each once; usually none
	for _, b := range q.Batches {
		if b.Outcome.Unsent {
			continue
		}
		m.produceBatch.Observe(float64(len(b.Records)))
		if code := codeOf(&b.Outcome); code != "" && !slices.Contains(codes, code) {
			codes = append(codes, code)
			m.produceRequests.WithLabelValues(code).Inc()
		}
	}
	if len(codes) == 0 {
		m.produceOK.Inc()
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
