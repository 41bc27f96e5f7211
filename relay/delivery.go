package relay

import (
	"context"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/offsets"
	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/relay/internal/message"
	"github.com/cdc-relay/cdc-relay/sink"
)

// delivery is one event from the moment it is decoded until its outcome is settled. It is the record's Owner.
//
// The dispatcher fills it before Submit; after that the settler owns it, except for the fields under the registry's mu.
// When it is terminal it is used anew for another event, and so are its bytes: nobody may keep a slice of them.
type delivery struct {
	record sink.Record

	// What settling a result looks at lies between the end of the record and the event's ID, which it looks at, too: a
	// delivery is cold by then, and each of its cache lines has to be fetched.
	received time.Duration // from the WAL, or read from the table; see sinceStart
	created  int64         // created_at, microseconds since the Unix epoch, if it is dated
	death    *death        // nil, but for those that die
	dated    bool          // created_at could be read
	retried  bool          // handed in again for a held lane, no result yet
	parked   bool          // comes from the parked events; its row is there until it is journaled or dead
	replay   bool          // it was a dead letter
	late     bool          // the stream has not delivered it in its place

	event    outbox.Event
	bytes    []byte       // what record and event are made of, when the delivery owns it; see keep
	reason   *sink.Reason // why it is or will be a dead letter
	attempts int          // spent so far by a parked event

	// Guarded by registry.mu.
	txn        *offsets.Txn    // its ledger entry, nil for a row of a catch-up
	ledger     *offsets.Ledger // the one that txn belongs to; that of an ended session is counted down in vain
	prev, next *delivery       // in the registry's list of what is in flight
	state      deliveryState
}

// encode makes the delivery's message of its event. A reason says that the event cannot be one at all.
func (d *delivery) encode(x *message.Encoder) {
	d.record.Owner = d
	d.created, d.dated, d.reason = x.Encode(&d.event, &d.record,
		message.Marks{Attempts: d.attempts, Replay: d.replay, Late: d.late})
}

// keep makes the delivery own its bytes; see [message.Encoder.Keep]. False: they are many, and stay where they are.
func (d *delivery) keep(x *message.Encoder) (kept bool) {
	d.bytes, kept = x.Keep(&d.event, &d.record, d.bytes)
	return kept
}

// start is what times of deliveries are counted from: a duration is a third of a time.Time.
var start = time.Now()

// sinceStart is the time, by the clock that is never set.
func sinceStart(at time.Time) time.Duration { return at.Sub(start) }

// death is what is known of an event that dies, or of the copy of one. Few do, so it is not in every delivery.
type death struct {
	probe    bool // tried again to see whether the breaker may close
	pardoned bool // a person let it die: the breaker does not count it

	// Of dlq.topic; see copies.
	copyOf  *delivery    // this one is a copy of that dead event, and in no registry
	refusal *sink.Reason // why its copy goes without its value
}

// tried is the death of an event that was refused once more.
func (x *death) tried() *death {
	if x != nil {
		x.probe = false
	}
	return x
}

// dying is the delivery's death, made at first sight.
func (d *delivery) dying() *death {
	if d.death == nil {
		d.death = &death{}
	}
	return d.death
}

// refused says that the broker, or the sink for the topic's limits, has refused it; else it could not be a message.
func (d *delivery) refused() bool { return d.record.Result == sink.Rejected && !d.record.Doomed }

type deliveryState uint8

const (
	free     deliveryState = iota // decoded or not even that; not in flight
	inFlight                      // admitted, not terminal
)

const (
	// blockSize is how many deliveries are allocated together: what fits Go's size class of 8 KiB.
	blockSize = 14
	// takenMost is how many free deliveries are taken under one hold of the lock.
	takenMost = 128
	// freeLeast is how many free deliveries are kept, with their bytes, even if they are not used.
	freeLeast = 1 << 10
	// trimEvery is how often the others that were not used since are given to the garbage collector: a steady flow, even one
	// that stops for moments, allocates nothing, and an idle relay gives the memory of its last burst back.
	trimEvery = 5 * time.Second
)

// registry knows every delivery in flight, so that a new session can recognise them when they come again, and keeps the
// free ones for reuse, one by one: however long a single event is stuck, it holds back its own memory only.
type registry struct {
	mu     sync.Mutex
	flying delivery // head of the ring of those in flight; only prev and next are used
	count  int      // in the ring
	late   int      // of those, rows that the reconciler found; parked ones that come back apart
	free   []*delivery
	low    int           // the fewest that were free since the last trim
	empty  chan struct{} // closed when count fell to zero; nil when nobody waits
}

func newRegistry() *registry {
	g := &registry{}
	g.flying.prev, g.flying.next = &g.flying, &g.flying
	return g
}

// take appends free deliveries, at least one, to into. Whoever takes more than it needs may keep them or drop them.
func (g *registry) take(into []*delivery) []*delivery {
	g.mu.Lock()
	defer g.mu.Unlock()
	rest := max(len(g.free)-takenMost, 0)
	into = append(into, g.free[rest:]...) // none of them is looked at: they are cold
	clear(g.free[rest:])
	g.free = g.free[:rest]
	g.low = min(g.low, rest)
	if len(into) == 0 {
		block := new([blockSize]delivery)
		for i := range block {
			into = append(into, &block[i])
		}
	}
	return into
}

// admit counts deliveries as in flight.
func (g *registry) admit(ds []*delivery) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range ds {
		if d.state != free {
			panic("relay: admitted a delivery that is in flight")
		}
		d.state = inFlight
		d.prev, d.next = g.flying.prev, &g.flying
		d.prev.next, d.next.prev = d, d
		if d.late && !d.parked {
			g.late++
		}
	}
	g.count += len(ds)
}

// finish marks deliveries terminal and counts down their ledger entries.
func (g *registry) finish(ds []*delivery) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range ds {
		if d.txn != nil {
			d.ledger.Done(d.txn)
		}
	}
	g.drop(ds)
}

// forget takes deliveries out that were never submitted: their session ended first, and they will come again.
func (g *registry) forget(ds []*delivery) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop(ds)
}

// drop frees deliveries for other events.
func (g *registry) drop(ds []*delivery) {
	for _, d := range ds {
		if d.state != inFlight {
			panic("relay: settled a delivery that is not in flight")
		}
		d.prev.next, d.next.prev = d.next, d.prev
		if d.late && !d.parked {
			g.late--
		}
		*d = delivery{bytes: d.bytes[:0], event: outbox.Event{Extra: d.event.Extra[:0]}}
	}
	g.free = append(g.free, ds...)
	g.count -= len(ds)
	if g.count == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

// trims calls trim until the context ends.
func (g *registry) trims(ctx context.Context) {
	for sleep(ctx, trimEvery) {
		g.trim()
	}
}

// trim lets go of the free deliveries that nobody has used since the last trim.
func (g *registry) trim() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if surplus := g.low - freeLeast; surplus > 0 {
		g.free = append(make([]*delivery, 0, len(g.free)-surplus), g.free[surplus:]...)
	}
	g.low = len(g.free)
}

// snapshot lists what is in flight by event id.
func (g *registry) snapshot() map[string]*delivery {
	g.mu.Lock()
	defer g.mu.Unlock()
	found := make(map[string]*delivery, g.count)
	for d := g.flying.next; d != &g.flying; d = d.next {
		found[string(d.event.ID)] = d
	}
	return found
}

// attach gives a delivery that came again its entry in the new session's ledger. False: it has become terminal.
func (g *registry) attach(d *delivery, id []byte, l *offsets.Ledger) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d.state != inFlight || string(d.event.ID) != string(id) { // it is free or another event's by now
		return false
	}
	if d.ledger != l { // else its id is twice in the stream: the first is enough, it holds back what comes after it
		d.txn, d.ledger = l.Add(), l
	}
	return true
}

// drained is closed when nothing is in flight.
func (g *registry) drained() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.count == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if g.empty == nil {
		g.empty = make(chan struct{})
	}
	return g.empty
}

// lateOnes is how many rows that the stream has missed are in flight.
func (g *registry) lateOnes() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.late
}

func (g *registry) len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.count
}
