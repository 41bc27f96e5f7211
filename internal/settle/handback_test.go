package settle

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/sink"
)

// parkingBench is a settler's parking on a real engine; the writer of parked events and the retrier are the test.
type parkingBench struct {
	*laneBench
	parking *parking
	lane    store.Lane
}

func newParkingBench(t *testing.T) *parkingBench {
	b := newLaneBench(t)
	loop := settlerOf(config.Default(), b.engine, nil).loop
	return &parkingBench{laneBench: b, parking: &loop.parking, lane: store.Lane{Topic: "t", Key: []byte("a")}}
}

// parkNext takes the next result, which must be held, and wants it parked.
func (b *parkingBench) parkNext() *parkChange {
	b.Helper()
	records, err := b.engine.Results(b.context, make([]*sink.Record, 0, 1))
	if err != nil || records[0].Result != sink.Held {
		b.Fatalf("results: got %+v, %v; want one that is held", records, err)
	}
	b.parking.held(records[0].Owner.(*Delivery))
	b.parking.advance()
	return b.parking.loop.parks.wanted[len(b.parking.loop.parks.wanted)-1]
}

// commit commits a park, as settler.finishAsides does.
func (b *parkingBench) commit(a *parkChange) {
	b.parking.committed(a)
	b.engine.Settled([]*sink.Record{&a.d.Record})
	b.parking.advance()
}

// due has the lane's rows asked for.
func (b *parkingBench) due() {
	b.Helper()
	b.parking.take(retrierWord{due: []store.Lane{b.lane}})
	b.parking.advance()
	b.wantAsked(1)
}

// answer answers the retrier's query with no row.
func (b *parkingBench) answer() {
	b.parking.loop.settler.retrier.asked = nil
	b.parking.take(retrierWord{portions: []store.Portion{{Lane: b.lane}}})
	b.parking.advance()
}

func (b *parkingBench) wantAsked(want int) {
	b.Helper()
	if got := len(b.parking.loop.settler.retrier.asked); got != want {
		b.Fatalf("questions for the lane's rows: got %d, want %d", got, want)
	}
}

func (b *parkingBench) wantHeldLanes(want int) {
	b.Helper()
	if got := b.engine.Status().HeldLanes; got != want {
		b.Fatalf("held lanes: got %d, want %d", got, want)
	}
}

// An event is parked, and that is committed, between the moment when its lane was found empty and the moment when
// that is told. Break it catches: the lane given back to the live path, where what comes next overtakes the parked
// event. Seen to fail with the lane's version not compared with the one that was asked at.
func TestLaneIsNotHandedBackOverAnEventParkedSinceItWasRead(t *testing.T) {
	b := newParkingBench(t)
	b.engine.Hold(b.lane)
	b.submit("a:1")
	parked := b.parkNext()
	b.due() // and read before the park is committed
	b.commit(parked)
	b.answer()
	b.wantHeldLanes(1)
	b.wantAsked(1) // again, at once: nothing else would wake the lane
	b.answer()     // someone discarded it
	b.wantHeldLanes(0)
	b.wantAsked(0)
}

// The same with a park that is still on its way. The relay and the sink each count it: seen to fail with neither
// counting, and with a lane that asks for its rows again before the park is committed.
func TestLaneIsNotHandedBackWhileAParkIsOnItsWay(t *testing.T) {
	b := newParkingBench(t)
	b.engine.Hold(b.lane)
	b.submit("a:1")
	parked := b.parkNext()
	b.due()
	b.answer()
	b.wantHeldLanes(1)
	b.wantAsked(0) // reading again is of no use before it is committed
	b.commit(parked)
	b.wantAsked(1)
	b.answer()
	b.wantHeldLanes(0)
}

// Break it catches: a transaction for each failed attempt. Seen to fail with one note in a portion.
func TestFailedAttemptsAreNotedInPortions(t *testing.T) {
	l := newParkingBench(t).parking.loop
	l.parks.notes = make([]*parkChange, parksMost+1)
	if got := len(l.nextParks()); got != parksMost {
		t.Errorf("failed attempts in one transaction, of %d that wait: got %d, want %d", len(l.parks.notes), got, parksMost)
	}
}
