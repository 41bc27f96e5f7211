// Package lanes decides what is handled next: each key in its order, different keys at once, as many events in one
// transaction as wait. It knows no database and no broker; workers ask it for jobs and tell it how they ended.
//
// Tested in engine_test.go, through the doors that workers use.
package lanes

import (
	"container/heap"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Place is a partition of a topic.
type Place struct {
	Topic     string
	Partition int32
}

// Item is a record that waits in its lane.
type Item struct {
	Record *kgo.Record
	seq    int64 // its number in the partition's tracker
	class  int   // see Limits
}

// Kind is the kind of a job.
type Kind uint8

// What a job asks for.
const (
	Handle Kind = iota // have the events' effects
	Park               // store the events behind those of their lane that are parked
	Retry              // take the lane's lowest parked events
)

// Piece is a lane's part of a job: its next events, in order.
type Piece struct {
	Lane  *Lane
	Items []Item
}

// Job is the work of one transaction of a worker. Only a job to handle has more than one piece.
type Job struct {
	Kind   Kind
	Pieces []Piece
	Probe  bool // the breaker is open: whether this one succeeds decides, and a failure counts for nothing
	class  int
	strain bool // its lane failed, or has parked events
}

// Failure is why a piece was not decided.
type Failure uint8

// Why a piece was not decided.
const (
	None      Failure = iota
	Transient         // the event's own, as far as one can tell
	Outage            // something outside is away
)

// Verdict is how a piece ended.
type Verdict struct {
	Decided int // so many of its items, from the first on
	Parked  bool
	Freed   bool          // nothing of the lane is parked any more
	Due     bool          // a parked lane is to be taken again when Wait is over
	Wait    time.Duration // leave the lane alone for so long
	Alone   int           // take so many of its next events one by one
	Failed  Failure
	Success bool // an effect was committed
}

// Options are an engine's bounds.
type Options struct {
	Workers   int
	MaxBatch  int // events of one transaction
	BatchTime time.Duration
	MaxEvents int // in memory
	MaxBytes  int
	Breaker   BreakerOptions
	Limits    Limits
}

// Engine hands out jobs. Its methods may be called from any goroutine.
//
// It keeps:
//  1. A lane is in at most one job at a time, and its items leave it in the order in which they came.
//  2. A partition's next offset passes only items that were decided.
//  3. After Revoke has returned its channel, no job has a new piece of the partition; when the channel is closed, none
//     has an old one.
type Engine struct {
	options Options

	mu         sync.Mutex
	cond       sync.Cond // the state has changed: a worker may find a job
	partitions map[Place]*Partition
	classes    []*class
	turn       int // the class that comes first when a job is looked for
	waiting    waits
	timer      *time.Timer
	breaker    breaker
	events     int // in lanes, whether a job has them or not
	taken      int // of them, those that a job has
	bytes      int
	busy       int  // jobs
	strained   int  // of them, those of strained lanes
	full       bool // no more may be parked
	closed     bool
	filling    bool // and the gaps of all partitions are being filled: see Drain
}

// New makes an engine without partitions.
func New(o Options) *Engine {
	e := &Engine{options: o, partitions: map[Place]*Partition{}, breaker: breaker{options: o.Breaker},
		classes: newClasses(o.Limits)}
	e.cond.L = &e.mu
	e.timer = time.AfterFunc(time.Hour, e.wake)
	return e
}

func (e *Engine) wake() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cond.Broadcast()
}

// Close ends Take: running jobs may finish, no more are handed out.
func (e *Engine) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed, e.filling = true, false
	e.timer.Stop()
	e.cond.Broadcast()
}

// Assign begins a partition at an offset, with those lanes parked that the database has. A partition of that place that
// is still there is dropped.
func (e *Engine) Assign(at Place, next int64, parked []Name) *Partition {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.drop(at)
	p := newPartition(at, next)
	e.partitions[at] = p
	for _, name := range parked {
		l := p.lane(name)
		l.parked, l.due = true, true
		e.enqueue(l)
	}
	e.cond.Broadcast()
	return p
}

// Feed hands over records of a partition, in the order of their offsets. Those of a partition that is not assigned are
// dropped. highWatermark is where its log ends, 0 if that is not known.
func (e *Engine) Feed(at Place, records []*kgo.Record, highWatermark int64) {
	classes := e.options.Limits.classes(records)
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.partitions[at]
	if p == nil {
		return
	}
	if highWatermark > 0 {
		p.highWatermark, p.ended = max(p.highWatermark, highWatermark), time.Now()
	}
	p.unread = max(0, p.unread-int64(len(records)))
	for i, r := range records {
		if r.Offset < p.tracker.fetched {
			p = e.restart(p, r.Offset)
		}
		item := Item{Record: r, seq: p.tracker.add(r.Offset)}
		if classes != nil {
			item.class = classes[i]
		}
		l := p.lane(NameOf(r))
		l.queue = append(l.queue, item)
		size := len(r.Value) + len(r.Key)
		p.events, p.bytes = p.events+1, p.bytes+size
		e.events, e.bytes = e.events+1, e.bytes+size
		e.enqueue(l)
	}
	e.cond.Broadcast()
}

// restart begins a partition again whose log has lost its end: other events may stand now at offsets that were read.
// What is the same is known by its id.
func (e *Engine) restart(p *Partition, from int64) *Partition {
	e.drop(p.at)
	fresh := newPartition(p.at, from)
	fresh.stopping, fresh.paused = p.stopping, p.paused
	e.partitions[p.at] = fresh
	for name, l := range p.lanes {
		if l.parked {
			again := fresh.lane(name)
			again.parked, again.due = true, true
			e.enqueue(again)
		}
	}
	return fresh
}

// Due reports that a parked lane's next event is to be tried now. It reports whether the partition is here.
func (e *Engine) Due(at Place, name Name) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.partitions[at]
	if p == nil {
		return false
	}
	l := p.lane(name)
	l.parked, l.due = true, true
	e.enqueue(l)
	e.cond.Broadcast()
	return true
}

// Take waits for a job. It reports false when there are no more: the engine was closed.
func (e *Engine) Take() (Job, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for !e.closed || e.filling && !e.breaker.open {
		now := time.Now()
		e.endWaits(now)
		if wait := e.breaker.wait(now); wait <= 0 || e.breaker.spares() {
			if job, found := e.collect(now); found {
				e.busy++
				return job, true
			}
		}
		if e.closed && e.busy == 0 {
			break
		}
		e.arm(now)
		e.cond.Wait()
	}
	if e.closed {
		e.timer.Stop()
	}
	return Job{}, false
}

func (e *Engine) endWaits(now time.Time) {
	for len(e.waiting) > 0 && !e.waiting[0].until.After(now) {
		l := heap.Pop(&e.waiting).(*Lane)
		l.waits = false
		e.enqueue(l)
	}
}

// arm sets the timer for whatever comes next by itself.
func (e *Engine) arm(now time.Time) {
	next := time.Hour
	if len(e.waiting) > 0 {
		next = min(next, e.waiting[0].until.Sub(now))
	}
	if wait := e.breaker.wait(now); wait > 0 {
		next = min(next, wait)
	}
	if until := e.breaker.until; e.breaker.doubt && !until.IsZero() {
		next = min(next, until.Sub(now))
	}
	e.timer.Reset(next)
}

// collect makes a job of the lanes that are ready: the first of them decides its kind.
func (e *Engine) collect(now time.Time) (Job, bool) {
	first := e.first(now)
	if first == nil {
		return Job{}, false
	}
	job := Job{Probe: e.breaker.careful(), strain: first.strained()}
	switch {
	case first.parked && first.due && !first.partition.filling:
		job.Kind = Retry
		first.due = false
		e.take(&job, first, 0)
	case first.parked:
		job.Kind = Park
		e.take(&job, first, e.options.MaxBatch)
	case first.alone > 0 || job.Probe:
		job.class = e.class(first)
		e.take(&job, first, 1)
	default:
		job.class = e.class(first)
		room := e.size(job.class)
		for l := first; l != nil; l = e.popPlain(job.class, room) {
			room -= e.take(&job, l, room)
		}
	}
	e.classes[job.class].jobs++
	if job.strain {
		e.strained++
	}
	if job.Probe {
		e.breaker.probing = true
	}
	return job, true
}

// size is how many events the next transaction takes: its fair share of what waits, not more than a handler does in
// BatchTime. At low load it is one, and nothing waits for company.
func (e *Engine) size(of int) int {
	c := e.classes[of]
	if c.most > 0 && c.perEvent == 0 { // slow ones, as far as is known
		return 1
	}
	share := (e.events - e.taken + e.options.Workers - 1) / e.options.Workers
	if c.perEvent > 0 {
		share = min(share, int(e.options.BatchTime.Seconds()/c.perEvent))
	}
	return max(1, min(share, e.options.MaxBatch))
}

func (e *Engine) take(job *Job, l *Lane, most int) (taken int) {
	taken = min(most, len(l.queue))
	for i := range taken {
		if job.Kind == Handle && l.queue[i].class != job.class {
			taken = i
			break
		}
	}
	if p := l.partition; p.filling {
		taken = p.below(l.queue[:taken])
	} else if taken > 0 {
		p.highest = max(p.highest, l.queue[taken-1].seq+1)
	}
	l.busy = true
	l.partition.busy++
	e.taken += taken
	l.partition.taken += taken
	job.Pieces = append(job.Pieces, Piece{Lane: l, Items: l.queue[:taken:taken]})
	return taken
}

// Finish says how a job's pieces ended, and how long its handlers took for how many events.
func (e *Engine) Finish(job Job, verdicts []Verdict, handled int, took time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.busy--
	if job.strain {
		e.strained--
	}
	c := e.classes[job.class]
	c.jobs--
	if handled > 0 {
		each := took.Seconds() / float64(handled)
		c.perEvent += (each - c.perEvent) / 8
	}
	now := time.Now()
	for i, piece := range job.Pieces {
		e.finish(piece, verdicts[i], now)
		e.breaker.note(piece.Lane, verdicts[i], job.Probe, now)
	}
	if job.Probe {
		e.breaker.probing = false
	}
	e.cond.Broadcast()
}

func (e *Engine) finish(piece Piece, v Verdict, now time.Time) {
	l, p := piece.Lane, piece.Lane.partition
	l.busy = false
	p.busy--
	defer p.settleIdle()
	if p.gone {
		return
	}
	e.taken -= len(piece.Items)
	p.taken -= len(piece.Items)
	for _, item := range piece.Items[:v.Decided] {
		p.tracker.decide(item.seq)
		size := len(item.Record.Value) + len(item.Record.Key)
		p.events, p.bytes = p.events-1, p.bytes-size
		e.events, e.bytes = e.events-1, e.bytes-size
	}
	clear(l.queue[:v.Decided]) // the records may go
	if l.queue = l.queue[v.Decided:]; v.Decided > 0 {
		l.Attempts, l.Since = 0, time.Time{}
		l.alone = max(0, l.alone-v.Decided)
	}
	l.alone = max(l.alone, v.Alone)
	l.parked = (l.parked || v.Parked) && !v.Freed
	l.due = l.parked && (l.due || v.Due)
	if v.Wait > 0 {
		l.waits, l.until = true, now.Add(v.Wait)
		heap.Push(&e.waiting, l)
		return
	}
	e.enqueue(l)
	if !l.parked && len(l.queue) == 0 && !l.ready {
		delete(p.lanes, l.Name)
	}
}
