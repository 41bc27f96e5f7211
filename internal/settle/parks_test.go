package settle

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// parksMeter counts parks.
type parksMeter struct {
	deaf
	parked int
}

func (m *parksMeter) Parked(events int) { m.parked += events }

// Break it catches: parks that are not counted, so that a relay all of whose events are parked looks as if it stood
// still. Seen to fail with the meter not told.
func TestCommittedParksAreCounted(t *testing.T) {
	s := settlerOf(config.Default(), newLaneBench(t).engine, nil)
	meter := &parksMeter{}
	s.meter = meter
	events := s.inflight.Take(nil)[:5]
	s.inflight.Admit(events)
	for i, d := range events {
		d.Record.Topic = "t"
		s.loop.parking.park(d, outbox.Transient, 0, store.WhenWell)
		s.loop.finishParks(s.loop.parks.wanted[:1])
		if meter.parked != i+1 {
			t.Errorf("after %d parks: got %d counted", i+1, meter.parked)
		}
	}
}

// Events without a key find the window full, and then are not handed in any more: their topic is in trouble again, or
// none of them is left. Break it catches: limits.parked_events that holds for no topic from then on. Seen to fail with
// one of them noted until the next are handed in.
func TestStarvedEventsLiftTheLimitOfParkedOnesForAWhileOnly(t *testing.T) {
	s := settlerOf(config.Default(), newLaneBench(t).engine, nil)
	p := &s.loop.parking
	if p.waitsForParks() {
		t.Error("before anything is handed in: got lanes that wait for parks, want none")
	}
	for after, want := range map[time.Duration]bool{0: true, retrierLook: true, starvedFor: false} {
		p.starved = time.Now().Add(-after)
		if got := p.waitsForParks(); got != want {
			t.Errorf("%v after the window was full: waits for parks %t, want %t", after, got, want)
		}
	}
}
