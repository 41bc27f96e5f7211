package settle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/offsets"
)

// deliver takes n free deliveries, gives them the ids "<name>-<i>", as the dispatcher does, and admits them.
func deliver(g *Registry, name string, n int, l *offsets.Ledger) []*Delivery {
	var spare, out []*Delivery
	for i := range n {
		if len(spare) == 0 {
			spare = g.Take(spare)
		}
		d := spare[len(spare)-1]
		spare = spare[:len(spare)-1]
		d.Event.ID = fmt.Appendf(nil, "%s-%d", name, i)
		if l != nil {
			d.Txn, d.Ledger = l.Add(), l
		}
		out = append(out, d)
	}
	g.Admit(out)
	return out
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Breaks it catches: finish that does not count the ledger down, drained that is closed too early or never, an
// event that stays listed when it is terminal.
func TestRegistryIsDrainedWhenEverythingIsTerminal(t *testing.T) {
	g, l := newRegistry(), offsets.New(100)
	if !closed(g.Drained()) {
		t.Error("drained of an empty registry: got open, want closed")
	}
	l.Begin(0)
	ds := deliver(g, "e", 300, l)
	l.Commit(200)
	drained := g.Drained()
	if got := g.Len(); got != 300 {
		t.Errorf("in flight: got %d, want 300", got)
	}
	g.finish(ds[:299])
	if closed(drained) || closed(g.Drained()) || l.Confirmed() != 100 {
		t.Errorf("with one event in flight: got drained %v, confirmed %v; want neither", closed(drained), l.Confirmed())
	}
	g.finish(ds[299:])
	if !closed(drained) || !closed(g.Drained()) || l.Confirmed() != 200 || g.Len() != 0 {
		t.Errorf("with nothing in flight: got drained %v, confirmed %v, %d in flight; want true, 0/C8, 0", closed(drained),
			l.Confirmed(), g.Len())
	}
	if known := g.Snapshot(); known.Len() != 0 {
		t.Errorf("snapshot: got %d events, want none", known.Len())
	}
}

// Break it catches: forget that counts the ledger down: what was never sent would be confirmed.
func TestForgottenEventsAreNeverConfirmed(t *testing.T) {
	g, l := newRegistry(), offsets.New(100)
	l.Begin(0)
	ds := deliver(g, "e", 3, l)
	l.Commit(200)
	g.finish(ds[:1])
	g.Forget(ds[1:])
	if g.Len() != 0 || !closed(g.Drained()) {
		t.Errorf("after forget: got %d in flight, want none", g.Len())
	}
	if got := l.Confirmed(); got != 100 || l.Pending() != 2 {
		t.Errorf("after forget: got confirmed %v with %d pending, want 0/64 with 2", got, l.Pending())
	}
}

// Breaks it catches: free deliveries that are given up while events still flow, so that all are made again after each
// moment in which nothing is in flight; and those of a burst that are kept forever. Seen to fail with a trim of
// whatever is free, and with none.
func TestFreeDeliveriesAreKeptWhileTheyAreUsed(t *testing.T) {
	g, l := newRegistry(), offsets.New(100)
	l.Begin(0)
	flow := func(n int) []*Delivery {
		ds := deliver(g, "e", n, l)
		g.finish(ds)
		return ds
	}
	const burst = 5 * freeLeast
	flow(burst)
	made := len(g.free)
	for range 3 {
		flow(burst)
		g.trim()
		if len(g.free) != made {
			t.Fatalf("free, as all were used since the last trim: got %d, want %d", len(g.free), made)
		}
	}
	for range 2 {
		flow(10)
		g.trim()
	}
	// deliver drops what it takes and does not need
	if n := len(g.free); n < freeLeast/2 || n > freeLeast+2*takenMost || cap(g.free) > 2*freeLeast {
		t.Errorf("free after the burst: got %d and room for %d, want about %d", n, cap(g.free), freeLeast)
	}
	if flow(burst); len(g.free) < burst {
		t.Errorf("free after another burst: got %d, want at least %d", len(g.free), burst)
	}
}

// Break it catches: an outcome counted twice, which would confirm an event that is still in flight.
func TestSettlingTwicePanics(t *testing.T) {
	g := newRegistry()
	d := g.Take(nil)[0]
	g.Admit([]*Delivery{d})
	g.finish([]*Delivery{d})
	defer func() {
		if recover() == nil {
			t.Error("the second finish did not panic")
		}
	}()
	g.finish([]*Delivery{d})
}

// A new session attaches what is in flight to its own ledger. Breaks it catches: a snapshot that misses an event or
// holds a terminal one, an attached event that counts for the ledger of the session that ended. Seen to fail with an
// empty snapshot.
func TestEventsInFlightCountForTheNewSession(t *testing.T) {
	g, old, renewed := newRegistry(), offsets.New(100), offsets.New(100)
	old.Begin(0)
	ds := deliver(g, "e", 200, old)
	old.Commit(200)
	g.finish(ds[:50])
	known := g.Snapshot()
	if known.Len() != 150 {
		t.Fatalf("snapshot: got %d events, want 150", known.Len())
	}
	renewed.Begin(0)
	done := g.Take(nil)[0]
	done.Event.ID = []byte("done")
	g.Admit([]*Delivery{done})
	g.finish([]*Delivery{done})
	if g.Attach(done, &outbox.Event{ID: []byte("done")}, renewed) {
		t.Error("attach of an event that has become terminal: got true, want false")
	}
	for i, d := range ds[50:] {
		e := &outbox.Event{ID: fmt.Appendf(nil, "e-%d", i+50)}
		if got := known.Find(e); got != d {
			t.Fatalf("snapshot: %s is %p, want %p", e.ID, got, d)
		}
		if !g.Attach(d, e, renewed) {
			t.Fatalf("attach %s: got false, want true", e.ID)
		}
	}
	renewed.Commit(200)
	g.finish(ds[50:])
	if old.Confirmed() != 100 || renewed.Confirmed() != 200 {
		t.Errorf("confirmed: got %v in the old ledger and %v in the new one, want 0/64 and 0/C8", old.Confirmed(),
			renewed.Confirmed())
	}
}

// An event that was read from the table has no place in the stream, and a row that was deleted and inserted again with
// its id is twice there. Break it catches: the event in flight counted once more, and finished once: nothing would be
// confirmed any more in this session. Seen to fail without a look whose it is already.
func TestEventThatComesTwiceCountsOnceForTheNewSession(t *testing.T) {
	g, renewed := newRegistry(), offsets.New(100)
	ds := deliver(g, "e", 1, nil)
	ds[0].Event.Position.Table = true
	for end := outbox.LSN(200); end <= 300; end += 100 {
		renewed.Begin(0)
		if !g.Attach(ds[0], &outbox.Event{ID: []byte("e-0"), Position: outbox.Position{Order: uint64(end)}}, renewed) {
			t.Fatalf("attach in the transaction that ends at %v: got false, want true", end)
		}
		renewed.Commit(end)
	}
	if got := renewed.Confirmed(); got != 100 {
		t.Errorf("confirmed while the event is in flight: got %v, want 0/64", got)
	}
	g.finish(ds)
	if got := renewed.Confirmed(); got != 300 {
		t.Errorf("confirmed: got %v, want 0/12C", got)
	}
}

// A process has two events of one id in flight, and the stream brings both again. Breaks it catches: one taken for the
// other, so that it is sent twice or never. Seen to fail with events known by their ids only, and with the last of an
// id known only.
func TestEventsOfOneIDInFlightAreKnownByTheirPlaces(t *testing.T) {
	g, renewed := newRegistry(), offsets.New(100)
	var ds []*Delivery
	for i := range 3 {
		d := deliver(g, "e", 1, nil)[0]
		d.Event.Position = outbox.Position{Order: 200 + uint64(i)}
		ds = append(ds, d)
	}
	listed := deliver(g, "row", 1, nil)[0]
	listed.Event.Position = outbox.Position{Epoch: 9, Table: true, Order: 1}
	known := g.Snapshot()
	if row := listed.Event.ID; !known.Has(0, row) ||
		known.Find(&outbox.Event{ID: row, Position: outbox.Position{Epoch: 9, Order: 300}}) != nil {
		t.Error("a row of a catch-up: got it for an event of the stream, or not known at all, want it known by its id only")
	}
	renewed.Begin(0)
	for i := range 4 {
		e := &outbox.Event{ID: []byte("e-0"), Position: outbox.Position{Epoch: 9, Order: 200 + uint64(i)}}
		d := known.Find(e)
		switch {
		case i == 3 && d != nil:
			t.Error("another event with the id: got a delivery, want none")
		case i < 3 && (d != ds[i] || !g.Attach(d, e, renewed)):
			t.Errorf("event %d: got delivery %p, want %p, in flight", i, d, ds[i])
		}
	}
}

// Break it catches: an event that is terminal, whose delivery is another event's by now, taken for one in flight: the
// ledger would wait for an outcome that never comes, or count another event's.
func TestReusedDeliveriesNeverConfuseTwoEvents(t *testing.T) {
	g, l := newRegistry(), offsets.New(100)
	earlier := offsets.New(100)
	earlier.Begin(0)
	first := deliver(g, "first", 10, earlier)
	known := g.Snapshot()
	g.finish(first)
	for i, d := range first {
		if d.Event.ID != nil || d.Txn != nil {
			t.Fatalf("delivery %d still holds its event when it is terminal: %q", i, d.Event.ID)
		}
	}
	l.Begin(0)
	second := deliver(g, "second", 10, nil)
	if !slices.Contains(second, first[0]) {
		t.Fatal("a free delivery was not used anew")
	}
	for i := range first {
		e := &outbox.Event{ID: fmt.Appendf(nil, "first-%d", i)}
		if d := known.Find(e); d == nil || g.Attach(d, e, l) {
			t.Errorf("attach %s: got true, or nothing known of it, want false: it is terminal", e.ID)
		}
	}
	if l.Pending() != 0 {
		t.Errorf("ledger: got %d pending, want 0", l.Pending())
	}
}

// Run with -race. Dispatcher, settler and the next session's look-ups meet in the registry; every event must be
// counted exactly once however they interleave. Breaks it catches: finish without the lock, a delivery given to two
// events, an attach that races with finish.
func TestRegistrySurvivesConcurrentFinishes(t *testing.T) {
	const rounds, perRound, settlers = 200, 190, 4
	g, l := newRegistry(), offsets.New(1)
	finishing := make(chan []*Delivery, 16)
	var workers sync.WaitGroup
	for range settlers {
		workers.Go(func() {
			for ds := range finishing {
				g.finish(ds)
			}
		})
	}
	random := rand.New(rand.NewPCG(1, 2))
	var spare []*Delivery
	end := 1
	for round := range rounds {
		l.Begin(0)
		var out []*Delivery
		for i := range perRound {
			if len(spare) == 0 {
				spare = g.Take(spare)
			}
			d := spare[len(spare)-1]
			spare = spare[:len(spare)-1]
			d.Event.ID = fmt.Appendf(nil, "%d-%d", round, i)
			d.Txn, d.Ledger = l.Add(), l
			out = append(out, d)
		}
		g.Admit(out)
		end += 10
		l.Commit(outbox.LSN(end))
		random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
		for len(out) > 0 {
			n := min(1+random.IntN(40), len(out))
			finishing <- out[:n:n]
			out = out[n:]
		}
		if round%10 == 0 {
			for id, f := range g.Snapshot().first {
				if id.ID == "" || f.d == nil {
					t.Error("snapshot of an event without an id")
				}
			}
		}
	}
	close(finishing)
	workers.Wait()
	<-g.Drained()
	if g.Len() != 0 || l.Pending() != 0 || l.Confirmed() != outbox.LSN(end) || g.Snapshot().Len() != 0 {
		t.Errorf("at the end: got %d in flight, %d pending, confirmed %v, %d listed; want 0, 0, %v, 0",
			g.Len(), l.Pending(), l.Confirmed(), g.Snapshot().Len(), outbox.LSN(end))
	}
}

// Break it catches: a delivery that grew beyond the size class that a block of them is made for. Seen to fail with
// nine words more in a delivery.
func TestBlockOfDeliveriesFillsItsSizeClass(t *testing.T) {
	const class = 8 << 10
	if got := unsafe.Sizeof([blockSize]Delivery{}); got > class || got < class*9/10 {
		t.Errorf("size of a block: got %d, want a little less than %d", got, class)
	}
}

// Breaks it catches: an event that is taken for one of another outbox with the same id, and so is never sent.
func TestEventsInFlightAreKnownByTheirSource(t *testing.T) {
	g, l := newRegistry(), offsets.New(100)
	d := deliver(g, "e", 1, nil)[0]
	d.Event.Source = 1
	d.Event.Position = outbox.Position{Order: 200}
	known := g.Snapshot()
	l.Begin(0)
	for _, source := range []int32{0, 1, 2} {
		e := d.Event
		e.Source = source
		ours := source == d.Event.Source
		found := known.Find(&e)
		if got := found == d; got != ours || known.Has(source, e.ID) != ours || g.Attach(d, &e, l) != ours {
			t.Errorf("source %d: found %v (known %v), want %v", source, got, known.Has(source, e.ID), ours)
		}
	}
}
