package settle

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/store"
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
