package lanes

import (
	"crypto/sha256"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Name names a lane in its partition: a key, the digest of a long one, or the offset of a record that has
// none and so no order.
type Name string

// longestKey is the longest key that is a lane's name itself. An entry of the parked lanes' index holds 2,704 bytes, up
// to 249 of them for the topic.
const longestKey = 2000

// NameOf is the lane of a record, as SQL's inbox_lane says it.
func NameOf(r *kgo.Record) Name {
	switch {
	case r.Key == nil:
		return loneName(r.Offset)
	case len(r.Key) > longestKey:
		digest := sha256.Sum256(r.Key)
		return Name("h" + string(digest[:]))
	}
	return Name("k" + string(r.Key))
}

func loneName(offset int64) Name {
	b := [9]byte{'o'}
	for i := range 8 {
		b[1+i] = byte(offset >> (56 - 8*i))
	}
	return Name(b[:])
}

// Lane is the events of a key. What is exported belongs to the worker that has the lane in a job, and to the engine
// between jobs; the rest to the engine's mutex.
type Lane struct {
	Name     Name
	Attempts int       // of the first event, in memory
	Since    time.Time // of its first failure
	Quarrels int       // failures in a row that were no one's fault: conflicts, outages
	Solo     int       // so many of its parked events are taken one by one

	partition *Partition
	queue     []Item
	parked    bool // the database has events of it: what comes is parked behind
	due       bool // and the first of them is to be tried
	alone     int
	failing   bool // its last event failed: see breaker
	busy      bool // a job has it
	ready     bool // it is in the queue of those that can be taken
	waits     bool // it is in the heap of those that can be taken later
	until     time.Time
}

// strained reports whether the lane fails, or has parked events.
func (l *Lane) strained() bool { return l.parked || l.failing }

// Place is where the lane's records come from.
func (l *Lane) Place() Place { return l.partition.at }

// Partition is the engine's state of an assigned partition.
type Partition struct {
	at            Place
	tracker       tracker
	lanes         map[Name]*Lane
	events, bytes int
	busy, taken   int // pieces and events that jobs have
	highWatermark int64
	ended         time.Time // when highWatermark or unread was seen last
	unread        int64     // records that it was not fed yet, where counted
	counted       bool      // see Left
	paused        bool
	highest       int64 // the number behind the last record that a job has had
	stopping      bool  // revoked: nothing more is handed out
	filling       bool  // except what is below highest: see gaps.go
	gone          bool  // dropped: nothing counts any more
	idle          chan struct{}
}

func newPartition(at Place, next int64) *Partition {
	return &Partition{
		at: at, lanes: map[Name]*Lane{}, tracker: tracker{next: next, fetched: next}, idle: make(chan struct{}),
	}
}

func (p *Partition) lane(name Name) *Lane {
	l := p.lanes[name]
	if l == nil {
		l = &Lane{Name: name, partition: p}
		p.lanes[name] = l
	}
	return l
}

// settleIdle closes the channel when no one works any more on a partition that is going or gone.
func (p *Partition) settleIdle() {
	if !p.stopping && !p.gone || p.busy > 0 || p.filling && !p.gone && p.hasGap() {
		return
	}
	select {
	case <-p.idle:
	default:
		close(p.idle)
	}
}

// Drop forgets partitions: no verdict on what is running counts.
func (e *Engine) Drop(places []Place) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, at := range places {
		e.drop(at)
	}
	e.cond.Broadcast()
}

func (e *Engine) drop(at Place) {
	p := e.partitions[at]
	if p == nil {
		return
	}
	e.events -= p.events
	e.taken -= p.taken
	e.bytes -= p.bytes
	p.gone = true
	p.settleIdle()
	delete(e.partitions, at)
}

// Places are the partitions that it has.
func (e *Engine) Places() []Place {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Keys(e.partitions))
}

// Pressure has nothing more fetched of some partitions for now, and of others again: each has its fair share of the
// bounds, so that a slow one does not stop the others. It returns how many stand still. The functions are called before
// any partition is assigned again: a pause that was meant for an earlier assignment would hold the new one permanently.
func (e *Engine) Pressure(pause, resume func([]Place)) (paused int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.partitions) == 0 {
		return 0
	}
	events := max(1, e.options.MaxEvents/len(e.partitions))
	bytes := max(1, e.options.MaxBytes/len(e.partitions))
	var full, free []Place
	for at, p := range e.partitions {
		// What is decided behind an event that is not holds a few bytes each, not the record.
		long := p.tracker.length() >= 20*events
		switch {
		case !p.paused && (p.events >= events || p.bytes >= bytes || long):
			p.paused = true
			full = append(full, at)
		case p.paused && p.events <= events/2 && p.bytes <= bytes/2 && !long:
			p.paused = false
			free = append(free, at)
		}
		if p.paused {
			paused++
		}
	}
	if len(full) > 0 {
		pause(full)
	}
	if len(free) > 0 {
		resume(free)
	}
	return paused
}

// Fetched is the offset behind the last record that a partition was fed, and false for one that is not here.
func (e *Engine) Fetched(at Place) (next int64, here bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.partitions[at]
	if p == nil {
		return 0, false
	}
	return p.tracker.fetched, true
}

// End says where a partition's log ends now.
func (e *Engine) End(at Place, end int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.partitions[at]; p != nil {
		p.highWatermark, p.ended = max(p.highWatermark, end), time.Now()
	}
}

// Left says how many records of the partition were not fed yet: for one whose offsets do not count records.
func (e *Engine) Left(at Place, unread int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.partitions[at]; p != nil {
		p.unread, p.counted, p.ended = unread, true, time.Now()
	}
}

// Above is how far a partition is decided, and which of its records above that are decided, too.
func (e *Engine) Above(at Place) (next int64, above []int64, here bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.partitions[at]
	if p == nil {
		return 0, nil, false
	}
	for i, decided := range p.tracker.decided {
		if decided {
			above = append(above, p.tracker.offsets[i])
		}
	}
	return p.tracker.next, above, true
}

// Progress is how far a partition is decided.
type Progress struct {
	Place        Place
	Next         int64 // everything below is decided
	Lag          int64 // records from there to the partition's end, when it was seen last
	Ended        bool  // it was seen, not long ago
	Undecided    int
	OldestMillis int64 // time stamp of the oldest undecided record in memory; 0 without one
}

// endKept is for how long a partition's end counts as known. The consumer asks for it every five seconds.
const endKept = 30 * time.Second

// Progress is that of every partition.
func (e *Engine) Progress() []Progress {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]Progress, 0, len(e.partitions))
	for at, p := range e.partitions {
		one := Progress{Place: at, Next: p.tracker.next, Lag: max(0, p.highWatermark-p.tracker.next),
			Ended: time.Since(p.ended) < endKept, Undecided: p.events}
		if p.counted {
			one.Lag = int64(p.events) + p.unread
		}
		for _, l := range p.lanes {
			if len(l.queue) == 0 {
				continue
			}
			if ms := l.queue[0].Record.Timestamp.UnixMilli(); one.OldestMillis == 0 || ms < one.OldestMillis {
				one.OldestMillis = ms
			}
		}
		all = append(all, one)
	}
	return all
}

// tracker knows which of a partition's records are decided. Offsets have holes: transactions, compaction.
type tracker struct {
	next    int64 // invariant: every record below is decided, the one at it is not or was not fetched
	fetched int64 // the offset behind the last record
	first   int64 // the number of offsets[0]
	offsets []int64
	decided []bool
}

func (t *tracker) length() int { return len(t.offsets) }

// add numbers a record; its offset is not below fetched.
func (t *tracker) add(offset int64) (seq int64) {
	t.offsets = append(t.offsets, offset)
	t.decided = append(t.decided, false)
	t.fetched = offset + 1
	return t.first + int64(len(t.offsets)) - 1
}

func (t *tracker) decide(seq int64) {
	at := seq - t.first
	if at < 0 || t.decided[at] {
		panic("lanes: a record was decided twice")
	}
	t.decided[at] = true
	n := 0
	for n < len(t.decided) && t.decided[n] {
		n++
	}
	if n == 0 {
		return
	}
	t.next = t.offsets[n-1] + 1
	t.first += int64(n)
	t.offsets, t.decided = t.offsets[n:], t.decided[n:]
}

func (p *Partition) over() bool { return p.stopping && !p.filling || p.gone }
