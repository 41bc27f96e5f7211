package meter

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// What the server's side of the stream does: values of a label.
const (
	// SenderCaughtUp: no WAL that was there at the last look but one is still to be worked through.
	SenderCaughtUp = "caught_up"
	// SenderSending: there is such WAL, and events have come since the last look.
	SenderSending = "sending"
	// SenderDecoding: there is such WAL, the relay waits for events, none has come since the last look, and the server's
	// process works. So it is at WAL without events for this relay, or at a large transaction before its end.
	SenderDecoding = "decoding"
	// SenderBlocked: there is such WAL, and the relay, or the network, does not take what the server could send.
	SenderBlocked = "blocked"
)

var senderStates = []string{SenderCaughtUp, SenderSending, SenderDecoding, SenderBlocked}

// Walsender is the state of the server's side of the stream. Names in JSON are stable.
type Walsender struct {
	State         *string  `json:"state"`          // caught_up, sending, decoding, blocked; null: cannot be told
	BehindBytes   *int64   `json:"behind_bytes"`   // WAL that the server has to work through, as far as it has told
	BehindSeconds *float64 `json:"behind_seconds"` // for how long the oldest of it has been there
	Sent          *string  `json:"sent_lsn"`       // null: not shown to this role (pg_read_all_stats)
	WaitEvent     string   `json:"wait_event"`     // "": it runs, or is not shown
	// Spilled are transactions of this slot that were larger than logical_decoding_work_mem, and the bytes of their
	// changes that went to files, since the server's statistics were reset.
	SpilledTransactions int64 `json:"spilled_transactions"`
	SpilledBytes        int64 `json:"spilled_bytes"`
}

// Tables is the part of a [store.Store] that this package uses.
type Tables interface {
	Walsender(ctx context.Context, pid uint32) (store.Walsender, error)
}

// SenderLook is one look at the server's side, and at ours at that moment.
type SenderLook struct {
	store.Walsender
	At     time.Time
	End    outbox.LSN // of the WAL, as read before the rest
	Events uint64     // that the session has received
	Takes  bool       // the dispatcher waits for the stream, and nothing else
	PID    int64      // of the server's process
}

// sender remembers the last two looks. The watch stores them, any goroutine asks.
type sender struct {
	mu     sync.Mutex
	looks  int        // of this process of the server
	before SenderLook // guarded by mu
	last   SenderLook // guarded by mu
	unread unread     // of the server: WAL that it has not worked through
}

// LookedAtSender takes in a look.
func (d *Database) LookedAtSender(look SenderLook) {
	s := &d.sender
	s.unread.note(look.At, look.End)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.looks > 0 && look.PID != s.last.PID {
		s.looks = 0
	}
	s.before, s.last = s.last, look
	s.looks++
}

func (s *sender) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks = 0
}

// Walsender returns the state of the server's side of the stream; nil without a session or a recent look.
func (m *Meter) Walsender() *Walsender {
	session, some := m.source.Session()
	s := &m.Database.sender
	s.mu.Lock()
	looks, before, last := s.looks, s.before, s.last
	s.mu.Unlock()
	if !some || looks == 0 || time.Since(last.At) > slotFresh || !m.Leads() {
		return nil
	}
	at := max(session.Received, session.Granted)
	w := &Walsender{
		WaitEvent:           last.WaitsFor,
		SpilledTransactions: last.SpilledTransactions, SpilledBytes: last.SpilledBytes,
	}
	if last.Sent != nil {
		at = max(at, *last.Sent)
		w.Sent = new(last.Sent.String())
	}
	w.BehindBytes = new(max(int64(last.End)-int64(at), 0))
	w.BehindSeconds = new(s.unread.age(at).Seconds())
	if looks < 2 {
		return w
	}
	if state := doing(before, last, at); state != "" {
		w.State = &state
	}
	return w
}

// doing is "" for what cannot be told.
func doing(before, last SenderLook, at outbox.LSN) string {
	switch {
	case before.End <= at, last.Idle():
		return SenderCaughtUp
	case last.Events != before.Events:
		return SenderSending
	case !last.Takes || last.Blocked():
		return SenderBlocked
	case last.Works(), last.SpilledBytes > before.SpilledBytes:
		return SenderDecoding
	}
	return ""
}

var (
	senderState = definition{"cdc_walsender_state", "gauge",
		"1 for the state of the server's side of the stream.", []string{"state"}}
	senderBytes = definition{"cdc_walsender_behind_bytes", "gauge",
		"WAL that the server has not yet processed for the stream.", nil}
	senderSeconds = definition{"cdc_walsender_behind_seconds", "gauge",
		"Age of the oldest of that WAL.", nil}
	spilledTransactions = definition{"cdc_slot_spilled_transactions_total", "counter",
		"Transactions of any session larger than logical_decoding_work_mem, since the slot's statistics were reset.", nil}
	spilledBytes = definition{"cdc_slot_spilled_bytes_total", "counter",
		"Bytes of their changes that the server wrote to files.", nil}

	senderDefinitions = []definition{senderState, senderBytes, senderSeconds, spilledTransactions, spilledBytes}
	senderStateDesc   = senderState.desc()
	senderBytesDesc   = senderBytes.desc()
	senderSecondsDesc = senderSeconds.desc()
	spilledTxnsDesc   = spilledTransactions.desc()
	spilledBytesDesc  = spilledBytes.desc()
)

// senderCollector shows it while it is known.
type senderCollector struct{ m *Meter }

func (senderCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range senderDefinitions {
		ch <- d.desc()
	}
}

func (c senderCollector) Collect(ch chan<- prometheus.Metric) {
	w := c.m.Walsender()
	if w == nil {
		return
	}
	put := func(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, kind, value, labels...)
	}
	if w.State != nil {
		for _, state := range senderStates {
			put(senderStateDesc, prometheus.GaugeValue, indicator(state == *w.State), state)
		}
	}
	put(senderBytesDesc, prometheus.GaugeValue, float64(*w.BehindBytes))
	put(senderSecondsDesc, prometheus.GaugeValue, *w.BehindSeconds)
	put(spilledTxnsDesc, prometheus.CounterValue, float64(w.SpilledTransactions))
	put(spilledBytesDesc, prometheus.CounterValue, float64(w.SpilledBytes))
}
