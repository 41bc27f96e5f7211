package relay

import (
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/offsets"
	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// delivery is one event from the moment it is decoded until its outcome is settled. It is the record's Owner.
//
// The dispatcher fills it before Submit; after that the settler owns it, except for the fields under the registry's mu.
type delivery struct {
	record   sink.Record
	event    outbox.Event
	received time.Time    // from the WAL, or read from the table
	reason   *sink.Reason // why it is or will be a dead letter
	retried  bool         // handed in again for a held lane, no result yet
	parked   bool         // comes from the parked events; its row is there until it is journaled or dead
	attempts int          // spent so far by a parked event
	slab     *slab

	// Guarded by registry.mu.
	txn    *offsets.Txn    // its ledger entry, nil for a row of a catch-up
	ledger *offsets.Ledger // the one that txn belongs to; that of an ended session is counted down in vain
	state  deliveryState
}

type deliveryState uint8

const (
	fresh    deliveryState = iota // decoded; not in flight, maybe never to be
	inFlight                      // admitted, not terminal
	terminal                      // settled; its slab may be used anew
)

// slabSize is how many deliveries share one allocation: few enough that a single stuck event holds little back.
const slabSize = 128

// slab is a block of deliveries that are freed together.
type slab struct {
	items [slabSize]delivery
	used  int // owned by the dispatcher
	// Guarded by registry.mu.
	live   int  // admitted and not terminal
	sealed bool // the dispatcher will not add to it
}

// registry knows every delivery in flight, so that a new session can recognise them when they come again. Its cost is
// per block of events, not per event.
type registry struct {
	free sync.Pool

	mu    sync.Mutex
	slabs map[*slab]struct{}
	count int
	empty chan struct{} // closed when count fell to zero; nil when nobody waits
}

func newRegistry() *registry {
	return &registry{slabs: map[*slab]struct{}{}, free: sync.Pool{New: func() any { return new(slab) }}}
}

// open gives the dispatcher a fresh slab.
func (g *registry) open() *slab {
	s := g.free.Get().(*slab)
	g.mu.Lock()
	g.slabs[s] = struct{}{}
	g.mu.Unlock()
	return s
}

// seal says that the dispatcher adds nothing more to the slab.
func (g *registry) seal(s *slab) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s.sealed = true
	g.retire(s)
}

func (g *registry) retire(s *slab) {
	if !s.sealed || s.live > 0 {
		return
	}
	delete(g.slabs, s)
	*s = slab{}
	g.free.Put(s)
}

// admit counts deliveries as in flight.
func (g *registry) admit(ds []*delivery) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range ds {
		d.state = inFlight
		d.slab.live++
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

func (g *registry) drop(ds []*delivery) {
	for _, d := range ds {
		if d.state != inFlight {
			panic("relay: settled a delivery that is not in flight")
		}
		d.state = terminal
		d.slab.live--
	}
	for _, d := range ds {
		if d.slab != nil { // nil: an earlier one of ds retired the slab, which zeroed it
			g.retire(d.slab)
		}
	}
	g.count -= len(ds)
	if g.count == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

// snapshot lists what is in flight by event id.
func (g *registry) snapshot() map[string]*delivery {
	g.mu.Lock()
	defer g.mu.Unlock()
	found := make(map[string]*delivery, g.count)
	for s := range g.slabs {
		for i := range s.items {
			if d := &s.items[i]; d.state == inFlight {
				found[string(d.event.ID)] = d
			}
		}
	}
	return found
}

// attach gives a delivery that came again its entry in the new session's ledger. False: it has become terminal.
func (g *registry) attach(d *delivery, id []byte, l *offsets.Ledger) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d.state != inFlight || string(d.event.ID) != string(id) { // a retired slab is zeroed and maybe used anew
		return false
	}
	d.txn, d.ledger = l.Add(), l
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

func (g *registry) len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.count
}
