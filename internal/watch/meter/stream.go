package meter

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The labels of a session's end.
const (
	RestartSilent         = "silent"
	RestartServerShutdown = "server_shutdown"
	RestartLeaseLost      = "lease_lost"
	RestartSpool          = "spool"
	RestartOutbox         = "outbox"
	RestartConnection     = "connection"
)

// start is where times begin that are kept as numbers. They are by the clock that is never set.
var start = time.Now()

// Stream counts what sessions and their streams do. The supervisor and the dispatcher call it, one at a time.
type Stream struct {
	Received      prometheus.Counter
	Transactions  prometheus.Counter
	UncleanStarts prometheus.Counter
	Shadowed      prometheus.Counter // headers
	Recreations   prometheus.Counter // of the slot
	Reconciled    prometheus.Counter

	// Redelivered events that were not sent again, by what knew them.
	SkippedMemory, SkippedJournal, SkippedTopic prometheus.Counter

	Interleaved OverlapLint // the dispatcher notes events; any goroutine asks

	PossibleDuplicates atomic.Uint64 // of a process that died; the driver counts its own

	restarts  *prometheus.CounterVec
	received  atomic.Uint64 // as Received
	age       atomic.Int64  // microseconds, see Age
	delivered atomic.Int64  // when the stream delivered events last, since start; 0: never; see Old
}

func (s *Stream) define(f factory) {
	s.Transactions = f.counter("cdc_transactions_total", "Transactions received from the stream.")
	s.Received = f.counter("cdc_events_received_total", "Events received from the stream, redelivered ones included.")
	skipped := f.counters("outbox_duplicates_skipped_total",
		"Redelivered events that were not sent again, by what recorded them.", "by")
	s.SkippedMemory, s.SkippedJournal = skipped.WithLabelValues("memory"), skipped.WithLabelValues("journal")
	s.SkippedTopic = skipped.WithLabelValues("topic")
	s.UncleanStarts = f.counter("outbox_unclean_starts_total",
		"Starts after a crash: redelivered events were looked up.")
	s.Shadowed = f.counter("outbox_headers_shadowed_total",
		"Headers of rows that were dropped because the relay uses their names.")
	s.Recreations = f.counter("cdc_slot_recreations_total",
		"Times that the slot was lost, recreated or moved, and the relay began with the table.")
	s.Reconciled = f.counter("outbox_reconciled_total",
		"Rows that the stream missed, found by the reconciler and published late.")
	f.counted("outbox_interleaved_total",
		"Events inserted before, but committed after, one of the same aggregate: writers overlap without a lock.",
		func() float64 { return float64(s.Interleaved.Total()) })
	s.restarts = f.counters("cdc_stream_restarts_total",
		"Restarts of the replication session.", "reason",
		RestartSilent, RestartServerShutdown, RestartLeaseLost, RestartSpool, RestartOutbox,
		RestartConnection)
}

// Restarted counts a session's end that is followed by another.
func (s *Stream) Restarted(reason string) { s.restarts.WithLabelValues(reason).Inc() }

// Began notes how old, by its commit time, the transaction is that is dispatched now.
func (s *Stream) Began(micros int64) { s.age.Store(micros) }

// Took counts what came from the stream, for a whole batch at a time.
func (s *Stream) Took(now time.Time, events, transactions int) {
	if events > 0 {
		s.delivered.Store(int64(now.Sub(start)))
	}
	s.Received.Add(float64(events))
	s.Transactions.Add(float64(transactions))
	s.received.Add(uint64(events))
}

// Events is how many were received.
func (s *Stream) Events() uint64 { return s.received.Load() }

// Age is how old, by its commit time, the transaction was that was dispatched last; see sink.Config.Behind.
func (s *Stream) Age() time.Duration { return time.Duration(s.age.Load()) * time.Microsecond }

const (
	// OldAge is from what age on the stream is behind, so that what can wait does.
	OldAge = time.Second
	// oldFor is for how long that is true after the stream has delivered something: a stream that is idle is not behind.
	oldFor = 500 * time.Millisecond
)

// Old reports whether the stream delivers, and what it delivers is old.
func (s *Stream) Old() bool {
	at := s.delivered.Load()
	return s.Age() > OldAge && at != 0 && time.Since(start)-time.Duration(at) < oldFor
}
