package meter

import (
	"hash/maphash"
	"strings"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

const (
	slots   = 4096 // aggregates that are remembered: 224 KiB. Two that meet in a slot hide each other, and count nothing
	idBytes = 36   // of an event's id that are remembered: a uuid's
	named   = 5    // pairs that a report names
)

// InterleavedPair is two events of an aggregate.
type InterleavedPair struct {
	AggregateType string    `json:"aggregate_type"`
	AggregateID   string    `json:"aggregate_id"`
	Event         string    `json:"event"`  // inserted first, committed later
	Before        string    `json:"before"` // inserted later, committed first
	At            time.Time `json:"at"`     // when it was noticed
}

// Interleaved summarizes overlaps since the process started.
type Interleaved struct {
	Total uint64            `json:"total"`
	Last  []InterleavedPair `json:"last"` // the newest one last
}

// OverlapLint notices writers of one aggregate that overlapped: in the order of the commits the number that each row
// draws at its insert goes back. Who holds a lock on the aggregate before the insert cannot do that. It counts and
// names them; order is the order of the commits all the same, and nothing is held up.
//
// It compares events in the order of the stream. One goroutine calls Begin and Note, any one the rest.
type OverlapLint struct {
	seed maphash.Seed
	seen []newest // nil until there is a number

	mu     sync.Mutex
	on     bool
	report Interleaved
}

// newest is an aggregate's newest event.
type newest struct {
	aggregate uint64 // its hash
	seq       int64
	id        [idBytes]byte
	idLen     uint8
}

// Begin forgets all events, for what comes again is no news, and returns the column to look at: orderBy if that is one
// column, else seq.
func (l *OverlapLint) Begin(orderBy string) (column string) {
	l.seed = maphash.MakeSeed()
	clear(l.seen)
	if column = strings.TrimSpace(orderBy); column == "" || strings.ContainsAny(column, ", ") {
		return "seq"
	}
	return column
}

// Note compares the event with the newest one of its aggregate. It allocates when they are interleaved, and once.
func (l *OverlapLint) Note(e *outbox.Event) {
	if e.Seq == 0 || e.AggregateID == nil {
		return
	}
	if l.seen == nil {
		l.begin()
	}
	h := maphash.Bytes(l.seed, e.AggregateID) ^ 31*maphash.Bytes(l.seed, e.AggregateType)
	at := &l.seen[h%slots]
	if at.aggregate == h && e.Seq < at.seq {
		l.count(e, string(at.id[:at.idLen]))
	}
	// The newest one, not the highest: a sequence that is set back counts once for each aggregate, and not forever.
	at.aggregate, at.seq = h, e.Seq
	at.idLen = uint8(copy(at.id[:], e.ID))
}

func (l *OverlapLint) begin() {
	l.seen = make([]newest, slots)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on = true
}

func (l *OverlapLint) count(e *outbox.Event, before string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report.Total++
	if l.report.Last = append(l.report.Last, InterleavedPair{
		AggregateType: string(e.AggregateType), AggregateID: string(e.AggregateID),
		Event: string(e.ID[:min(len(e.ID), idBytes)]), Before: before, At: time.Now(),
	}); len(l.report.Last) > named {
		l.report.Last = l.report.Last[1:]
	}
}

// Report returns the overlaps; nil if no event had a number to compare.
func (l *OverlapLint) Report() *Interleaved {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.on {
		return nil
	}
	return &Interleaved{l.report.Total, append([]InterleavedPair{}, l.report.Last...)}
}

// Total is how many were noticed.
func (l *OverlapLint) Total() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.report.Total
}
