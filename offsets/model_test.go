package offsets

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"pgregory.net/rapid"
)

// model is the ledger as one would write it without a thought for speed: it keeps all input, and finds
// each answer by looking at all of it.
type model struct {
	start   outbox.LSN
	entries []*modelEntry
}

type modelEntry struct {
	txn        *Txn // of the real ledger; nil for a keepalive
	end        outbox.LSN
	commitTime int64
	open       bool
	pending    int
}

func (m *model) highest() outbox.LSN {
	highest := m.start
	for _, e := range m.entries {
		highest = max(highest, e.end)
	}
	return highest
}

func (m *model) confirmed() outbox.LSN {
	confirmed := m.start
	for _, e := range m.entries {
		if e.open || e.pending > 0 {
			break
		}
		confirmed = e.end
	}
	return confirmed
}

func (m *model) oldest() (int64, bool) {
	for _, e := range m.entries {
		if e.open || e.pending > 0 {
			return e.commitTime, true
		}
	}
	return 0, false
}

func (m *model) pending() (events, unsettled int) {
	for _, e := range m.entries {
		events += e.pending
		if e.open || e.pending > 0 {
			unsettled++
		}
	}
	return events, unsettled
}

func (m *model) open() *modelEntry {
	if n := len(m.entries); n > 0 && m.entries[n-1].open {
		return m.entries[n-1]
	}
	return nil
}

func (m *model) withPending() []*modelEntry {
	var found []*modelEntry
	for _, e := range m.entries {
		if e.pending > 0 {
			found = append(found, e)
		}
	}
	return found
}

// Catches any difference between the ledger and the model, in any answer after any step: a wrong end confirmed, a
// keepalive taken inside a transaction, an end given to the wrong neighbour, an entry used again while it is in use.
// Seen to fail with what is settled confirmed past what is not.
func TestLedgerAgreesWithTheNaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := outbox.LSN(rapid.Uint64Range(0, 50).Draw(t, "start"))
		l, m := New(start), &model{start: start}
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				if m.open() != nil {
					t.Skip("inside a transaction")
				}
				at := rapid.Int64().Draw(t, "commit time")
				l.Begin(at)
				m.entries = append(m.entries, &modelEntry{commitTime: at, open: true})
			},
			"add": func(t *rapid.T) {
				e := m.open()
				if e == nil {
					t.Skip("outside a transaction")
				}
				for range rapid.IntRange(1, 3).Draw(t, "events") {
					e.txn = l.Add()
					e.pending++
				}
			},
			"commit": func(t *rapid.T) {
				e := m.open()
				if e == nil {
					t.Skip("outside a transaction")
				}
				e.end = m.highest() + outbox.LSN(rapid.Uint64Range(1, 4).Draw(t, "length"))
				e.open = false
				l.Commit(e.end)
			},
			"keepalive": func(t *rapid.T) {
				walEnd := m.highest() + outbox.LSN(rapid.Uint64Range(0, 8).Draw(t, "distance"))
				walEnd -= min(walEnd, 4)
				l.Keepalive(walEnd)
				if m.open() == nil && walEnd > m.highest() {
					m.entries = append(m.entries, &modelEntry{end: walEnd})
				}
			},
			"done": func(t *rapid.T) {
				entries := m.withPending()
				if len(entries) == 0 {
					t.Skip("nothing pending")
				}
				e := rapid.SampledFrom(entries).Draw(t, "transaction")
				for range rapid.IntRange(1, e.pending).Draw(t, "events") {
					l.Done(e.txn)
					e.pending--
				}
			},
			"": func(t *rapid.T) { compare(t, l, m) },
		})
	})
}

func compare(t *rapid.T, l *Ledger, m *model) {
	if got, want := l.Confirmed(), m.confirmed(); got != want {
		t.Fatalf("Confirmed: got %v, want %v", got, want)
	}
	events, unsettled := m.pending()
	if got := l.Pending(); got != events {
		t.Fatalf("Pending: got %d, want %d", got, events)
	}
	gotTime, gotOK := l.Oldest()
	if wantTime, wantOK := m.oldest(); gotTime != wantTime || gotOK != wantOK {
		t.Fatalf("Oldest: got %d, %v, want %d, %v", gotTime, gotOK, wantTime, wantOK)
	}
	if got := l.Len(); got != unsettled {
		t.Fatalf("Len: got %d, want %d unsettled transactions", got, unsettled)
	}
}
