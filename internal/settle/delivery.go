package settle

import (
	"context"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/memory"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/offsets"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Delivery is one event from the moment it is decoded until its outcome is settled. It is the record's Owner.
//
// The dispatcher fills it before Submit; after that the settler owns it, except for the fields under the registry's
// mu. When it is terminal it is used again for another event, and so are its bytes: no one may keep a slice of them.
type Delivery struct {
	Record sink.Record

	// What settling a result looks at lies between the end of the record and the event's ID, which it looks at, too:
	// a delivery is cold by then, and each of its cache lines has to be fetched.
	Received time.Duration // from the WAL, or read from the table; see SinceStart
	Created  int64         // created_at, microseconds since the Unix epoch, if it is dated
	dead     *deadMark     // nil, but for those that become dead letters
	Dated    bool          // created_at could be read
	retried  bool          // handed in again for a held lane, no result yet
	parked   bool          // comes from the parked events; its row is there until it is journaled or dead
	Replay   bool          // it was a dead letter
	Late     bool          // the stream has not delivered it in its place
	Reused   bool          // it is a row whose id another event had before
	Listed   bool          // it is a row as a catch-up listed it

	Event    outbox.Event
	Memory   memory.Memory // of record and event, when the delivery owns it; see message.Encoder.Keep
	Reason   *sink.Reason  // why it is or will be a dead letter
	Attempts int           // spent so far by a parked event

	Committed int64 // of an event that the stream brought: when, by the server's clock; 0: unknown

	Txn        *offsets.Txn    // its ledger entry, nil for a row of a catch-up; this and what follows: by Registry.mu
	Ledger     *offsets.Ledger // the one that txn belongs to; that of an ended session is counted down without success
	prev, next *Delivery       // in the registry's list of what is in flight
	admitted   bool            // in flight, not terminal
}

// Start is the origin of the times of deliveries: a duration is a third of a time.Time.
var Start = time.Now()

// SinceStart is the time, by the clock that is never set.
func SinceStart(at time.Time) time.Duration { return at.Sub(Start) }

// deadMark describes an event that becomes a dead letter, or its copy. Few do, so it is not in
// every delivery.
type deadMark struct {
	probe    bool // tried again to see whether the breaker may close
	pardoned bool // a person has let it pass: the breaker does not count it

	// Of dlq.topic; see copies.
	copyOf  *Delivery    // this one is a copy of that dead event, and in no registry
	refusal *sink.Reason // why its copy goes without its value
}

// tried is the mark of an event that was refused once more.
func (x *deadMark) tried() *deadMark {
	if x != nil {
		x.probe = false
	}
	return x
}

// mark is the delivery's deadMark, made at first sight.
func (d *Delivery) mark() *deadMark {
	if d.dead == nil {
		d.dead = &deadMark{}
	}
	return d.dead
}

// Refused reports that the broker, or the sink for the topic's limits, has refused it; else it could not be a
// message.
func (d *Delivery) Refused() bool { return d.Record.Result == sink.Rejected && !d.Record.Doomed }

// IsCopy reports that this is the copy of a dead letter on its way to dlq.topic, and no event.
func (d *Delivery) IsCopy() bool { return d.dead != nil && d.dead.copyOf != nil }

const (
	// blockSize is how many deliveries are allocated together: what fits Go's size class of 8 KiB.
	blockSize = 13
	// takenMost is how many free deliveries are taken under one hold of the lock.
	takenMost = 128
	// freeLeast is how many free deliveries are kept, with their bytes, even if they are not used.
	freeLeast = 1 << 10
	// trimEvery is how often the others that were not used since are given to the garbage collector: a steady flow,
	// even one that stops for moments, allocates nothing, and an idle relay gives the memory of its last burst back.
	trimEvery = 5 * time.Second
)

// Registry knows every delivery in flight, so that a new session can recognise them when they come again, and keeps
// the free ones for reuse, one by one: however long a single event is stuck, it holds back its own memory only.
type Registry struct {
	mu     sync.Mutex
	flying Delivery // head of the ring of those in flight; only prev and next are used
	count  int      // in the ring
	late   int      // of those, rows that the reconciler found; parked ones that come back apart
	free   []*Delivery
	low    int           // the fewest that were free since the last trim
	empty  chan struct{} // closed when count fell to zero; nil when no one waits
	asked  chan struct{} // told, without waiting, when someone begins to wait
}

func newRegistry() *Registry {
	g := &Registry{asked: make(chan struct{}, 1)}
	g.flying.prev, g.flying.next = &g.flying, &g.flying
	return g
}

// Take appends free deliveries, at least one, to into. The caller may keep or drop what it does not need.
func (g *Registry) Take(into []*Delivery) []*Delivery {
	g.mu.Lock()
	defer g.mu.Unlock()
	rest := max(len(g.free)-takenMost, 0)
	into = append(into, g.free[rest:]...) // none of them is looked at: they are cold
	clear(g.free[rest:])
	g.free = g.free[:rest]
	g.low = min(g.low, rest)
	if len(into) == 0 {
		block := new([blockSize]Delivery)
		for i := range block {
			into = append(into, &block[i])
		}
	}
	return into
}

// Admit counts deliveries as in flight.
func (g *Registry) Admit(ds []*Delivery) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range ds {
		if d.admitted {
			panic("settle: admitted a delivery that is in flight")
		}
		d.admitted = true
		d.prev, d.next = g.flying.prev, &g.flying
		d.prev.next, d.next.prev = d, d
		if d.Late && !d.parked {
			g.late++
		}
	}
	g.count += len(ds)
}

// finish marks deliveries terminal and counts down their ledger entries.
func (g *Registry) finish(ds []*Delivery) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range ds {
		if d.Txn != nil {
			d.Ledger.Done(d.Txn)
		}
	}
	g.drop(ds)
}

// Forget takes deliveries out that were never submitted: their session ended first, and they will come again.
func (g *Registry) Forget(ds []*Delivery) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop(ds)
}

// drop frees deliveries for other events.
func (g *Registry) drop(ds []*Delivery) {
	for _, d := range ds {
		if !d.admitted {
			panic("settle: settled a delivery that is not in flight")
		}
		d.prev.next, d.next.prev = d.next, d.prev
		if d.Late && !d.parked {
			g.late--
		}
		*d = Delivery{Memory: d.Memory.Freed(), Event: outbox.Event{Extra: d.Event.Extra[:0]}}
	}
	g.free = append(g.free, ds...)
	g.count -= len(ds)
	if g.count == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

// trims calls trim until the context ends.
func (g *Registry) trims(ctx context.Context) {
	for sleep(ctx, trimEvery) {
		g.trim()
	}
}

// trim lets go of the free deliveries that no one has used since the last trim.
func (g *Registry) trim() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if surplus := g.low - freeLeast; surplus > 0 {
		g.free = append(make([]*Delivery, 0, len(g.free)-surplus), g.free[surplus:]...)
	}
	g.low = len(g.free)
}

// Each shows what is in flight, under the lock: a look is a short one, and keeps no delivery that may be another's
// later.
func (g *Registry) Each(look func(*Delivery)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for d := g.flying.next; d != &g.flying; d = d.next {
		look(d)
	}
}

// placed reports whether the event's position is the one that the stream gave it.
func (d *Delivery) placed() bool { return !d.Late && !d.Event.Position.Table }

// streamMark is the stream position's [outbox.Position.Mark], and its [outbox.Position.RowMark] for what was read from
// the table: the stream may bring another event with its id that was committed before this one is journaled. 0: a
// person had it published again, and the stream may bring it, too.
func (d *Delivery) streamMark() int32 {
	switch {
	case d.placed():
		return d.Event.Position.Mark()
	case d.Replay:
		return 0
	}
	return d.Event.Position.RowMark(d.Listed, d.Reused)
}

// Snapshot lists what is in flight by source and event id.
func (g *Registry) Snapshot() Known {
	k := Known{first: map[outbox.Identity]flying{}}
	g.Each(func(d *Delivery) {
		id, f := d.Event.Identity(), flying{d, d.Event.Position, d.placed()}
		if _, twice := k.first[id]; !twice {
			k.first[id] = f
			return
		}
		if k.more == nil {
			k.more = map[outbox.Identity][]flying{}
		}
		k.more[id] = append(k.more[id], f)
	})
	return k
}

// Known holds the events that were in flight when a [Registry] was asked. The zero value knows nothing.
type Known struct {
	first map[outbox.Identity]flying
	more  map[outbox.Identity][]flying // further ones whose ids were used again
}

// flying is a delivery with what it was when it was listed: by now it may be another event's.
type flying struct {
	d      *Delivery
	at     outbox.Position
	placed bool
}

// Len is how many ids it knows.
func (k Known) Len() int { return len(k.first) }

// Has reports whether an event of the source with the id was in flight.
func (k Known) Has(source int32, id []byte) bool {
	_, known := k.first[outbox.Identity{Source: source, ID: string(id)}]
	return known
}

// Find is the delivery of an event that the stream brings again, nil if it was not in flight. Of a late row nothing but
// its id is known. Rows of a catch-up are recorded before the stream is read, and the tables know them from others.
func (k Known) Find(e *outbox.Event) *Delivery {
	f, known := k.first[outbox.Identity{Source: e.Source, ID: string(e.ID)}]
	if !known {
		return nil
	}
	if f.is(e) {
		return f.d
	}
	for _, f := range k.more[outbox.Identity{Source: e.Source, ID: string(e.ID)}] {
		if f.is(e) {
			return f.d
		}
	}
	return nil
}

func (f flying) is(e *outbox.Event) bool {
	return !f.at.Table && (!f.placed || samePlace(f.at, e.Position))
}

// samePlace compares places in the stream, whatever the era.
func samePlace(a, b outbox.Position) bool { return a.Order == b.Order && a.Index == b.Index }

// Attach gives a delivery that came again its entry in the new session's ledger. False: it has become terminal.
func (g *Registry) Attach(d *Delivery, e *outbox.Event, l *offsets.Ledger) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !d.admitted || d.Event.Source != e.Source || string(d.Event.ID) != string(e.ID) ||
		d.placed() && !samePlace(d.Event.Position, e.Position) {
		return false // it is free or another event's by now
	}
	if d.Ledger != l { // else its id is twice in the stream: the first is enough, it holds back what comes after it
		d.Txn, d.Ledger = l.Add(), l
	}
	return true
}

// Oldest is when the event that has been in flight for longest was received, counted from [Start]: of those that the
// ledger counts, or any does if it is nil. False: there is none.
func (g *Registry) Oldest(l *offsets.Ledger) (received time.Duration, some bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for d := g.flying.next; d != &g.flying; d = d.next {
		if d.Txn != nil && (l == nil || d.Ledger == l) {
			return d.Received, true
		}
	}
	return 0, false
}

// Drained is closed when nothing is in flight.
func (g *Registry) Drained() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.count == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if g.empty == nil {
		g.empty = make(chan struct{})
		signal(g.asked)
	}
	return g.empty
}

// awaited reports whether someone has asked for Drained and nothing has been in flight since.
func (g *Registry) awaited() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.empty != nil
}

// Late is how many rows that the stream has missed are in flight.
func (g *Registry) Late() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.late
}

// Len is how many events are in flight.
func (g *Registry) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.count
}
