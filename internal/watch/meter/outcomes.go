package meter

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Outcomes counts what becomes of events. The settler calls it: BeginResults, Acknowledged and EndResults from one
// goroutine, the rest from any. What is counted per event is one counter or histogram without labels; the counter per
// topic is looked up once per run of records of the same topic.
type Outcomes struct {
	published, deaths            *prometheus.CounterVec
	labels                       map[string]prometheus.Counter // published's, by topic; of the goroutine of Acknowledged
	publishLatency, relayLatency *latency
	settleSeconds, settleBatch   prometheus.Histogram
	retries, uncopied            prometheus.Counter
	openDead                     *Reading

	settled atomic.Uint64
	aside   atomic.Uint64 // parks, and failed attempts of parked events, that are committed
	// lastPublished is when the broker answered for an event last, Unix microseconds; 0: never.
	lastPublished atomic.Int64

	start time.Time
	run   run
}

// run is a number of acknowledged events of one topic that are not added to its counter yet.
type run struct {
	topic   string
	counter prometheus.Counter
	events  int

	at     time.Time // of the answer that was counted last
	since  time.Duration
	micros int64
}

func (o *Outcomes) define(f factory, options Options) {
	o.start = options.Start
	o.published = f.counters("outbox_published_total", fmt.Sprintf("Events acknowledged by the broker. Topics after the "+
		"first %d count together, as %s.", topicsLabelled, otherTopics), "topic", options.Topics...)
	o.labels = map[string]prometheus.Counter{}
	o.deaths = f.counters("outbox_failed_permanent_total", "Events that became dead letters.", "class",
		string(outbox.Permanent), string(outbox.Transient))
	o.publishLatency = f.latency("outbox_publish_latency_seconds", "From created_at to the broker's acknowledgement.")
	o.relayLatency = f.latency("outbox_relay_latency_seconds",
		"From receipt from the WAL to the broker's acknowledgement.")
	o.settleSeconds = f.histogram("outbox_settle_seconds", "Duration of a journal transaction.", latencyBuckets)
	o.settleBatch = f.histogram("outbox_settle_batch_size", "Events in a journal transaction.",
		prometheus.ExponentialBuckets(1, 4, 8))
	o.uncopied = f.counter("outbox_dlq_uncopied_total",
		"Dead letters that dlq.topic refused: in the table only.")
}

// BeginResults and EndResults stand around a run of Acknowledged: a scrape sees all of it or nothing.
func (o *Outcomes) BeginResults() {
	o.relayLatency.mu.Lock()
	o.publishLatency.mu.Lock()
}

// EndResults ends the run.
func (o *Outcomes) EndResults() {
	o.flush()
	o.relayLatency.mu.Unlock()
	o.publishLatency.mu.Unlock()
}

// Acknowledged counts an event that the broker has acknowledged: when it was received, counted from Options.Start, and
// when it was created, in microseconds since the Unix epoch, if that is known.
func (o *Outcomes) Acknowledged(rec *sink.Record, received time.Duration, created int64, dated bool) {
	r := &o.run
	if rec.Topic != r.topic || r.counter == nil {
		o.flush()
		r.topic, r.counter = rec.Topic, o.counterOf(rec.Topic)
	}
	r.events++
	if rec.At != r.at { // those of one request have the same
		r.at, r.since, r.micros = rec.At, rec.At.Sub(o.start), rec.At.UnixMicro()
	}
	o.relayLatency.observe(r.since - received)
	if dated {
		o.publishLatency.observe(time.Duration(r.micros-created) * time.Microsecond)
	}
}

// Rows name topics, so that only the first topicsLabelled have a series of their own.
const (
	topicsLabelled = 1000
	otherTopics    = "other"
)

func (o *Outcomes) counterOf(topic string) prometheus.Counter {
	c := o.labels[topic]
	switch {
	case c != nil:
	case len(o.labels) < topicsLabelled:
		c = o.published.WithLabelValues(topic)
		o.labels[topic] = c
	default:
		c = o.published.WithLabelValues(otherTopics)
	}
	return c
}

func (o *Outcomes) flush() {
	if r := &o.run; r.events > 0 {
		r.counter.Add(float64(r.events))
		r.events = 0
		o.lastPublished.Store(r.micros)
	}
}

// Journaled counts a journal transaction.
func (o *Outcomes) Journaled(events int, took time.Duration) {
	o.settleSeconds.Observe(took.Seconds())
	o.settleBatch.Observe(float64(events))
	o.settled.Add(uint64(events))
}

// Died counts an event that became a dead letter.
func (o *Outcomes) Died(class outbox.ErrorClass) {
	o.deaths.WithLabelValues(string(class)).Inc()
	o.openDead.value.Add(1) // until it is counted
	o.settled.Add(1)
}

// Parked counts parks, and failed attempts of parked events, that are committed.
func (o *Outcomes) Parked(events int) { o.aside.Add(uint64(events)) }

// Retried counts attempts of parked events.
func (o *Outcomes) Retried(attempts int) { o.retries.Add(float64(attempts)) }

// Uncopied counts a dead letter that dlq.topic refused.
func (o *Outcomes) Uncopied() { o.uncopied.Inc() }

// Settled is how many events are journaled or dead letters. Any goroutine may ask, as for all that follows.
func (o *Outcomes) Settled() uint64 { return o.settled.Load() }

// Moves is a number that grows when something is recorded of any event. What is parked is recorded, too, though it will
// be settled when it is published.
func (o *Outcomes) Moves() uint64 { return o.settled.Load() + o.aside.Load() }

// Topics are the events that the broker has acknowledged, by topic.
func (o *Outcomes) Topics() map[string]uint64 { return vector(o.published) }

// LastPublished is when the broker answered for an event last; nil before the first.
func (o *Outcomes) LastPublished() *time.Time {
	micros := o.lastPublished.Load()
	if micros == 0 {
		return nil
	}
	return new(time.UnixMicro(micros).UTC())
}
